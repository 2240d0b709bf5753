// Casts between the element types that quantized models go through.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

enum class CastType : int { kF32, kF64, kI32, kI64, kU8, kI8, kCount };

inline constexpr int kCastTypes = static_cast<int>(CastType::kCount);

struct CastLoops {
  // By what is cast, and to what. A real number becomes the whole one towards 0, beyond the type's
  // range its nearest end, NaN 0; a whole number keeps its lowest bits.
  void (*cast[kCastTypes][kCastTypes])(const void* x, void* out, int64_t n);
};

BRAID_DECLARE_LOOPS(CastLoops)

}  // namespace braid::simd
