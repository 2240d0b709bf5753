// Whether a kernel's spec is a use of its operator: what kernels may rely on, wherever the plan
// came from.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "graph/op_def.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// The attributes that all samples of the operator have are there (flags may be absent), of the
// samples' types, and none that no sample has; the operands are as many as the operator has and of
// the types that it infers; each holds a box of its tensor, and the boxes fit together as some of
// its signatures split them. INVALID_ARGUMENT with the operator, the name and both values.
absl::Status CheckKernelSpec(const OpDef& op, const KernelSpec& spec);

// For kernels of operators that have no samples: as many operands, each of them a box of its
// tensor, and attributes of the names and types that `like` has.
struct KernelForm {
  size_t inputs = 0;
  size_t outputs = 0;
  Attrs like = {};
};
absl::Status CheckKernelForm(const KernelForm& form, const KernelSpec& spec);

}  // namespace braid
