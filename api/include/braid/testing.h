// Checks of a program's own operators, for its tests: link braid::testing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/dtype.h"
#include "graph/op_registry.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct OperatorTestOptions {
  // The floating types that its kernel has. Layouts and the gradient are tried in the first, which
  // is best f64: its rounding is so small that nothing hides in it. With f64 among them, the others
  // are compared with it.
  std::vector<DType> dtypes = {DType::kF64, DType::kF32};
};

// Tries an operator that `extend` (as in MainOptions) registers, by the samples of its definition,
// at their sizes and others: its gradient against central differences, and what its kernel makes of
// every legal layout on 1 to 4 devices, on 2 x 2 and 3 x 2, and over micro-batches, against the
// whole. Seconds, in this process, without a session.
// INTERNAL with the first few cases that differ; NOT_FOUND with the nearest name if there is no
// such operator; INVALID_ARGUMENT without a type; what `extend` returns if that is no OK.
absl::Status TestOperator(
    const std::string& op,
    const std::function<absl::Status(OpRegistry& operators, KernelRegistry& kernels)>& extend,
    const OperatorTestOptions& options = {});

}  // namespace braid
