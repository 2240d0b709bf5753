// A kernel: one op's work on one device's shard, prepared once from the Plan and then run act by
// act. Kernels know logical shapes and the region they hold, so that random numbers, indices and
// means are those of the whole tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/dtype.h"
#include "graph/op_parts.h"
#include "graph/sbp.h"
#include "graph/shape.h"
#include "runtime/kernels/work_memory.h"

namespace braid {

// One operand of a kernel. Memory is dense and row-major in `region.size`.
struct OperandSpec {
  DType dtype = DType::kF32;
  Shape logical;       // of the whole tensor, whole batch
  Region region;       // what this device holds, in act 0 of a step
  int time_axis = -1;  // split over micro-batches along this axis (-1: not): in act t of a step
  int64_t time_stride = 0;  // region.offset[time_axis] is larger by t * time_stride
  bool partial = false;     // an addend (P) of the logical value

  const Shape& shape() const { return region.size; }
  int64_t num_elements() const { return region.size.num_elements(); }
};

struct KernelSpec {
  std::string op;    // OpDef name: selects the kernel
  std::string name;  // the op's unique name: key of random numbers, shown in errors
  Attrs attrs;       // shapes in attributes are logical ones: use the operands' regions instead
  std::vector<OperandSpec> inputs, outputs;
  uint64_t seed = 0;                           // the session's
  int threads = 1;                             // a device's own threads
  std::shared_ptr<WorkMemory> work = nullptr;  // of the thread that runs it; null: the kernel's own
  bool contributes = true;  // this rank is the first one among those that hold the same P addend
                            // position 0: an op that makes P out of B adds its B terms here only
};

class Stream;

struct KernelRun {
  Stream* stream = nullptr;        // of the device, in which the work is queued; null: the host's
  int64_t step = 0;                // of the job, counted over checkpoints
  int64_t micro_batch = 0;         // act within the step, 0 .. rate - 1
  void* const* inputs = nullptr;   // written only where the OpDef says Mutates
  void* const* outputs = nullptr;  // may equal an input where the OpDef says Inplace
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // On the thread that feeds the stream, which a CPU's kernel does its work on. OK unless the
  // outside (a file, a feed) failed.
  virtual absl::Status Run(const KernelRun& run) = 0;

  // How it can work in parts (graph/op_parts.h): at least as its operator's definition says.
  virtual OpParts parts() const { return {}; }
  // Run's work for the elements [begin, begin + size) of such operands, of a kernel that has parts.
  virtual void RunPart(const KernelRun& /*run*/, int64_t /*begin*/, int64_t /*size*/) {}

  // What it keeps for itself beside its operands, in bytes: copies, packed operands, partial sums.
  virtual int64_t memory_bytes() const { return 0; }
  // What it reserves of KernelSpec::work: of the kernels that share it, the largest counts.
  virtual int64_t shared_bytes() const { return 0; }
};

using KernelFactory = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const KernelSpec&)>;

class OpRegistry;

// The kernels of one kind of device. An object: users and the runtime add to it.
class KernelRegistry {
 public:
  KernelRegistry() = default;
  // What Check knows. Shared with copies of this object.
  explicit KernelRegistry(std::shared_ptr<const OpRegistry> operators)
      : operators_(std::move(operators)) {}
  // `wrap` is given every kernel that Create makes, and returns what is used instead: one that
  // measures it, say.
  using Wrapper =
      std::function<std::unique_ptr<Kernel>(const KernelSpec&, std::unique_ptr<Kernel>)>;
  // Has the kernels of `base` (borrowed), also those that it gets later, as `wrap` returns them.
  KernelRegistry(const KernelRegistry* base, Wrapper wrap) : base_(base), wrap_(std::move(wrap)) {}

  absl::Status Register(std::string op, KernelFactory factory);  // ALREADY_EXISTS if taken
  // Whether a spec that came from outside is a use of its operator (check_spec.h), on which
  // factories rely; INVALID_ARGUMENT if not. OK for operators that are unknown here.
  absl::Status Check(const KernelSpec& spec) const;
  // NOT_FOUND or UNIMPLEMENTED with op, name and dtypes if there is no kernel for them.
  absl::StatusOr<std::unique_ptr<Kernel>> Create(const KernelSpec& spec) const;
  bool Has(std::string_view op) const;

  // Of what Create makes from now on.
  void WrapAll(Wrapper wrap) { wrap_ = std::move(wrap); }

 private:
  const KernelRegistry* base_ = nullptr;
  std::map<std::string, KernelFactory, std::less<>> factories_;
  Wrapper wrap_;
  std::shared_ptr<const OpRegistry> operators_;  // null: unknown
};

// Every CPU kernel that needs nothing but its operands: the list is runtime/kernels/cpu/all.cc.
KernelRegistry CpuKernels();

}  // namespace braid
