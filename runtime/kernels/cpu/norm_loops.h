// Loops of normalization: a row of layer norm and RMS norm, which takes its own statistics, and,
// for batch and group norm, rows with statistics from elsewhere, of one channel (its numbers are
// scalars) or of many channels ("each": a number per element). Of n elements each; n may be 0.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// The terms that rows add to the gradients of gamma and beta are summed in blocks of so many, for
// accuracy over many rows.
constexpr int64_t kRowBlock = 64;

// dx = of_dy * dy + of_x * (x - mean) + addend; a number per element with `Each`.
template <class T>
struct CenteredGrad {
  T of_dy, of_x, addend;
};
template <class T>
struct CenteredGradEach {
  const T *of_dy, *of_x, *addend;
};

template <class T>
struct NormLoops {
  void (*layer_norm)(const T* x, const T* gamma, const T* beta, T* y, int64_t n, T epsilon, T* mean,
                     T* rstd);
  // Writes dx; adds this row's terms to dgamma and dbeta.
  void (*layer_norm_grad)(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, T* dgamma,
                          T* dbeta, int64_t n);
  // y = x * rstd * gamma; returns rstd = 1 / sqrt(mean(x^2) + epsilon).
  T (*rms_norm)(const T* x, const T* gamma, T* y, int64_t n, T epsilon);
  // Writes dx; adds this row's terms to dgamma.
  void (*rms_norm_grad)(const T* x, const T* gamma, T rstd, const T* dy, T* dx, T* dgamma,
                        int64_t n);
  // By statistics from elsewhere.
  T (*centered_square_sum)(const T* x, T mean, int64_t n);  // of (x - mean)^2
  // y = (x - mean) * factor + addend
  void (*centered_scale)(const T* x, T mean, T factor, T addend, T* y, int64_t n);
  // Of dy, and of dy * (x - mean).
  void (*centered_dot)(const T* x, T mean, const T* dy, int64_t n, T* sum, T* dot);
  void (*centered_grad)(const T* x, T mean, const T* dy, const CenteredGrad<T>& c, T* dx,
                        int64_t n);
  // The same with numbers per element; sums are added to what is there, element by element.
  void (*add_centered_squares)(const T* x, const T* mean, T* squares, int64_t n);
  void (*centered_scale_each)(const T* x, const T* mean, const T* factor, const T* addend, T* y,
                              int64_t n);
  void (*add_centered_dots)(const T* x, const T* mean, const T* dy, T* sum, T* dot, int64_t n);
  void (*centered_grad_each)(const T* x, const T* mean, const T* dy, const CenteredGradEach<T>& c,
                             T* dx, int64_t n);
};

BRAID_DECLARE_LOOPS(NormLoops<float>)
BRAID_DECLARE_LOOPS(NormLoops<double>)

}  // namespace braid::simd
