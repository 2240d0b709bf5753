// The element type of a product, which may be wider than its operands'.
#pragma once

#include "absl/status/statusor.h"
#include "graph/op_def.h"

namespace braid {

// The inputs' dtype, or attribute dtype: f32 of narrow inputs.
absl::StatusOr<DType> ProductType(const OpContext& ctx);

}  // namespace braid
