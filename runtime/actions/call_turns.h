// Which calls of a compute task take turns on parts of their elements: those that the plan lets
// (compiler::Turns), where their kernels have such parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/plan/node_plan.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// An operand of which every part lies where the first one does.
struct StayingOperand {
  size_t operand = 0;  // of all calls' operands: each call's inputs, then its outputs
  int64_t element_bytes = 0;
};

// The calls [begin, end).
struct CallTurns {
  size_t begin = 0, end = 0;
  int64_t elements = 0, part = 0;  // of all, and at a time
  std::vector<StayingOperand> staying;
};

// `kernels`: of the calls. Leaves out turns of which a kernel knows nothing, with other numbers of
// elements or in other steps, and those whose staying operands have other numbers of elements: such
// calls run one after another. So whatever a plan says, a kernel sees parts that it has said it
// works in, and what stays is within its operand.
std::vector<CallTurns> TurnsOf(const plan::Compute& compute, std::span<Kernel* const> kernels);

}  // namespace braid
