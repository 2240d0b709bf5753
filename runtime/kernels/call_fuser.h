// Calls in a row of a compute task that one kernel can do, on devices that make kernels when a job
// is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace braid {

// Where an operand of a call lies. Those of different areas are different memory as far as the plan
// goes, though not always in the machine: a register may take another one's place.
struct PlacedOperand {
  int32_t area = 0;
  uint64_t offset = 0, bytes = 0;
  bool is_scratch = false;  // only calls of this task read it, in the same act
};

struct PlacedCall {
  std::unique_ptr<Kernel> kernel;
  std::vector<PlacedOperand> inputs, outputs;
  bool may_fuse = true;
};

// The calls [begin, end), which `kernel` does. Its inputs are theirs, one call's after the other's,
// and so are its outputs.
struct FusedCalls {
  size_t begin = 0, end = 0;
  std::unique_ptr<Kernel> kernel;
};

class CallFuser {
 public:
  virtual ~CallFuser() = default;
  // Ascending, without overlaps; takes the kernels of these calls. What they make as scratch and
  // nobody else reads may not be there afterwards.
  virtual std::vector<FusedCalls> Fuse(std::vector<PlacedCall>& calls) = 0;
  // What Fuse has made so far is ready to run, which may take seconds. Any thread.
  virtual void Compile() = 0;
};

}  // namespace braid
