// Windows that slide over the spatial axes of [n, c, space...]: what convolution and pooling share,
// definitions and kernels alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attrs.h"
#include "graph/shape.h"

namespace braid {

// On one spatial axis. Tap t of window o reads x at o * stride - pad_begin + t * dilation.
struct WindowAxis {
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t pad_begin = 0, pad_end = 0;

  int64_t span() const { return dilation * (kernel - 1) + 1; }
};

// One per entry of `kernel`, from the attributes strides, dilations, pads_begin and pads_end, whose
// lists must be as long. INVALID_ARGUMENT for numbers below 1 (paddings: 0) or above 2^24.
absl::StatusOr<std::vector<WindowAxis>> WindowsOf(const Attrs& attrs,
                                                  const std::vector<int64_t>& kernel);

// How many windows fit into `size` elements and their padding. With ceil_mode the last window may
// end outside, if it starts before the padding behind. INVALID_ARGUMENT if none fits.
absl::StatusOr<int64_t> CountWindows(int64_t size, const WindowAxis& axis, bool ceil_mode = false);

// The attributes for `windows`, beside others.
void SetWindows(Attrs& attrs, const std::vector<WindowAxis>& windows);

// The dims of [n, c, space...] behind the first two.
std::vector<int64_t> SpaceOf(const Shape& shape);
Shape WithSpace(int64_t n, int64_t c, const std::vector<int64_t>& space);

// INVALID_ARGUMENT if a shape has 2^31 elements or more on an axis, or more than 2^62 in all.
absl::Status CheckElements(const Shape& shape);

}  // namespace braid
