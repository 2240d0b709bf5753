// Loops of rotary embeddings: a row of pairs that are turned by their angles.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

template <class T>
struct RotaryLoops {
  // Turns each of `pairs` pairs by its angle: elements 2 i and 2 i + 1, or i and pairs + i.
  void (*rotate_pairs)(const T* x, const T* cos, const T* sin, T* y, int64_t pairs);
  void (*rotate_halves)(const T* x, const T* cos, const T* sin, T* y, int64_t pairs);
};

BRAID_DECLARE_LOOPS(RotaryLoops<float>)
BRAID_DECLARE_LOOPS(RotaryLoops<double>)

}  // namespace braid::simd
