// Loops of softmax, log-softmax and cross entropy over one row of n elements; n may be 0.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

template <class T>
struct SoftmaxLoops {
  T (*sum_exp)(const T* x, T max, int64_t n);  // of exp(x - max)
  void (*softmax)(const T* x, T* y, int64_t n, T scale);
  void (*softmax_grad)(const T* y, const T* dy, T* dx, int64_t n, T scale);
  void (*log_softmax)(const T* x, T* y, int64_t n);
  void (*log_softmax_grad)(const T* y, const T* dy, T* dx, int64_t n);
  void (*scaled_exp)(const T* x, T* y, int64_t n, T max, T factor);  // factor * exp(x - max)
};

BRAID_DECLARE_LOOPS(SoftmaxLoops<float>)
BRAID_DECLARE_LOOPS(SoftmaxLoops<double>)

}  // namespace braid::simd
