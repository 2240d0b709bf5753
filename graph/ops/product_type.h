// The element type of a product, which may be wider than its operands'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/op_def.h"

namespace braid {

// The inputs' dtype, or attribute dtype: f32 of narrow inputs.
absl::StatusOr<DType> ProductType(const OpContext& ctx);

// Of products of bytes: a and b are u8 or i8, and so are their zero points, if there are any: [] or
// [1], that of b perhaps one for each of `outputs`.
absl::Status CheckBytes(const OpContext& ctx, int64_t outputs);
// Their operands in a sharding rule; `outputs` is the axis of b's zero points.
std::string ZeroPointRule(const OpContext& ctx, std::string_view outputs);

}  // namespace braid
