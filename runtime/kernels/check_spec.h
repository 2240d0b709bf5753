// Whether a kernel's spec is a use of its operator: what kernels may rely on, wherever the plan
// came from.
#pragma once

#include "absl/status/status.h"
#include "graph/op_def.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// The attributes that all samples of the operator have are there, of the samples' types; the
// operands are as many as the operator has and of the types that it infers; each holds a box of its
// tensor. INVALID_ARGUMENT with the operator, the name and both values.
absl::Status CheckKernelSpec(const OpDef& op, const KernelSpec& spec);

}  // namespace braid
