// Loops of attention over one row of n scores; n may be 0. The products stand in product_loops.h.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// One query's row of the gradient of attention.
struct AttentionRow {
  double scale, lse, delta, factor;
};

template <class T>
struct AttentionLoops {
  T (*exp_and_sum)(const T* x, T* y, int64_t n, T scale, T max);  // y = exp(scale * x - max)
  // Scores to weights p = exp(scale * score - lse), their gradient to ds = factor * p * (dp -
  // delta), both in place.
  void (*attention_weights_grad)(T* scores, T* gradient, int64_t n, const AttentionRow& row);
  void (*scale_add)(const T* a, T scale, T* x, int64_t n);  // x = scale * x + a
  // x = scale * x where keep is not 0, else -inf.
  void (*scale_where)(const uint8_t* keep, T scale, T* x, int64_t n);
};

BRAID_DECLARE_LOOPS(AttentionLoops<float>)
BRAID_DECLARE_LOOPS(AttentionLoops<double>)

}  // namespace braid::simd
