// Loops that make something of random words: dropout.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

template <class T>
struct RandomLoops {
  // out = x * scale where the uniform number made of the word is >= rate, else 0.
  void (*dropout)(const T* x, const uint32_t* words, T* out, int64_t n, float rate, T scale);
};

BRAID_DECLARE_LOOPS(RandomLoops<float>)
BRAID_DECLARE_LOOPS(RandomLoops<double>)

}  // namespace braid::simd
