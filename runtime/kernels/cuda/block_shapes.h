// How factories cut work into blocks of threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "graph/dtype.h"

namespace braid::cuda {

inline constexpr int64_t kBlockThreads = 256;
inline constexpr int64_t kManyBlocks = 1024;  // that keep a card busy

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The smallest power of two that is not below n, up to `most`, which is one.
inline int32_t PowerOfTwo(int64_t n, int64_t most) {
  if (n <= 1) return 1;
  return static_cast<int32_t>(
      std::min(std::bit_ceil(static_cast<uint64_t>(n)), static_cast<uint64_t>(most)));
}

// Of what a floating type is added in.
inline int64_t WideBytes(DType type) { return type == DType::kF64 ? 8 : 4; }

}  // namespace braid::cuda
