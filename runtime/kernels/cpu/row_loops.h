// Loops over one row of n elements: sums, extremes, products. n may be 0. Sums have an order that
// depends on n only.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// Rows of which sums over rows add up one by one.
inline constexpr int64_t kSumRowBlock = 128;

template <class T>
struct RowLoops {
  T (*sum)(const T* x, int64_t n);
  T (*max)(const T* x, int64_t n);  // -inf if empty; NaN if any is
  T (*min)(const T* x, int64_t n);
  T (*sum_square)(const T* x, int64_t n);
  T (*sum_abs)(const T* x, int64_t n);
  T (*product)(const T* x, int64_t n);
  // out[j] = sum over i < rows of x[i * stride + j], j < n; of its square; of its magnitude.
  void (*sum_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  void (*sum_square_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  void (*sum_abs_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  // out[j] += x[i * stride + j], i < rows, j < n, in that order. sum_rows is this over blocks of
  // kSumRowBlock rows, whose results are joined in double.
  void (*add_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  T (*dot)(const T* a, const T* b, int64_t n);
  void (*add_scaled)(const T* x, T factor, T* y, int64_t n);  // y += factor * x
};

BRAID_DECLARE_LOOPS(RowLoops<float>)
BRAID_DECLARE_LOOPS(RowLoops<double>)

}  // namespace braid::simd
