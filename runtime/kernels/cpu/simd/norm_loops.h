// Loops of batch and group normalization: rows of one channel (its numbers are scalars), and rows
// of many channels ("each": a number per element). Included only by loops_for_isa.cc.
#pragma once

#include "runtime/kernels/cpu/simd/row_loops.h"

namespace braid::simd::BRAID_ISA {

template <class T>
T CenteredSquareSumLoop(const T* x, T mean, int64_t n) {
  return SumOf<T>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        const T d = x[i] - mean;
        return d * d;
      });
}

template <class T>
void CenteredScaleLoop(const T* x, T mean, T factor, T addend, T* y, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor + addend;
}

template <class T>
void CenteredDotLoop(const T* x, T mean, const T* dy, int64_t n, T* sum, T* dot) {
  *sum = SumLoop(dy, n);
  *dot = SumOf<T>(
      n, [=](int64_t i) __attribute__((always_inline)) { return dy[i] * (x[i] - mean); });
}

template <class T>
void CenteredGradLoop(const T* x, T mean, const T* dy, const CenteredGrad<T>& c, T* dx, int64_t n) {
  const T of_dy = c.of_dy, of_x = c.of_x, addend = c.addend;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = of_dy * dy[i] + of_x * (x[i] - mean) + addend;
}

template <class T>
void AddCenteredSquaresLoop(const T* x, const T* mean, T* squares, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T d = x[i] - mean[i];
    squares[i] += d * d;
  }
}

template <class T>
void CenteredScaleEachLoop(const T* x, const T* mean, const T* factor, const T* addend, T* y,
                           int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean[i]) * factor[i] + addend[i];
}

template <class T>
void AddCenteredDotsLoop(const T* x, const T* mean, const T* dy, T* sum, T* dot, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += dy[i];
    dot[i] += dy[i] * (x[i] - mean[i]);
  }
}

template <class T>
void CenteredGradEachLoop(const T* x, const T* mean, const T* dy, const CenteredGradEach<T>& c,
                          T* dx, int64_t n) {
  const T *of_dy = c.of_dy, *of_x = c.of_x, *addend = c.addend;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = of_dy[i] * dy[i] + of_x[i] * (x[i] - mean[i]) + addend[i];
  }
}

}  // namespace braid::simd::BRAID_ISA
