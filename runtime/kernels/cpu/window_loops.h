// Loops of pooling: rows that windows read with a stride.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

template <class T>
struct WindowLoops {
  // Windows: y[i] joined with x[i * stride]. arg_max: of the largest so far and its index, -1 at
  // first; x[j] has index first + j. scatter: y[i * stride] += x[i].
  void (*add_strided)(const T* x, int64_t stride, T* y, int64_t n);
  void (*max_strided)(const T* x, int64_t stride, T* y, int64_t n);
  void (*arg_max_strided)(const T* x, int64_t stride, int32_t first, T* best, int32_t* index,
                          int64_t n);
  void (*scatter_strided)(const T* x, T* y, int64_t stride, int64_t n);
  // The largest of each window of 2 x 2 elements, side by side: `rows` rows of width / 2 windows,
  // from 2 * rows rows of x, contiguous; the width is even. The scratch has rows * width elements,
  // for the gradient twice as many.
  void (*max_2x2)(const T* x, int64_t rows, int64_t width, T* scratch, T* y);
  void (*max_2x2_grad)(const T* x, const T* dy, int64_t rows, int64_t width, T* scratch, T* dx);
};

BRAID_DECLARE_LOOPS(WindowLoops<float>)
BRAID_DECLARE_LOOPS(WindowLoops<double>)

}  // namespace braid::simd
