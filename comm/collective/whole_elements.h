// How algorithms cut data.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid {

// The most bytes, up to `bytes`, that are whole elements; of an element that is larger, one.
constexpr int64_t WholeElements(int64_t bytes, int64_t element_size) {
  return std::max<int64_t>(1, bytes / element_size) * element_size;
}

}  // namespace braid
