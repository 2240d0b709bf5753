// The attributes of resize_axis, as its kernels read them too.
#pragma once

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/ops/resize_attrs.h"

namespace braid {

// INVALID_ARGUMENT for names that do not exist and numbers that cannot be.
absl::StatusOr<ResizeAttrs> ResizeOf(const Attrs& attrs);

}  // namespace braid
