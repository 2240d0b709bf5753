// Layer norm and RMS norm of a row, and rows of batch and group norm.
#include "runtime/kernels/cpu/norm_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void LayerNormLoop(const T* x, const T* gamma, const T* beta, T* y, int64_t n, T epsilon,
                   T* mean_out, T* rstd_out) {
  const T mean = SumLoop(x, n) / static_cast<T>(n);
  const T variance = SumOf<T>(n,
                              [=](int64_t i) {
                                const T d = x[i] - mean;
                                return d * d;
                              }) /
                     static_cast<T>(n);
  const T rstd = T{1} / Sqrt(variance + epsilon);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
  *mean_out = mean;
  *rstd_out = rstd;
}

template <class T>
void LayerNormGradLoop(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, T* dgamma,
                       T* dbeta, int64_t n) {
  // g = dy * gamma, h = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g h)).
  const T mean_g = DotLoop(dy, gamma, n) / static_cast<T>(n);
  const T mean_gh =
      SumOf<T>(n, [=](int64_t i) { return dy[i] * gamma[i] * ((x[i] - mean) * rstd); }) /
      static_cast<T>(n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T h = (x[i] - mean) * rstd;
    const T d = dy[i];
    dgamma[i] += d * h;
    dbeta[i] += d;
    dx[i] = rstd * (d * gamma[i] - mean_g - h * mean_gh);
  }
}

template <class T>
T RmsNormLoop(const T* x, const T* gamma, T* y, int64_t n, T epsilon) {
  const T rstd = T{1} / Sqrt(DotLoop(x, x, n) / static_cast<T>(n) + epsilon);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * gamma[i];
  return rstd;
}

template <class T>
void RmsNormGradLoop(const T* x, const T* gamma, T rstd, const T* dy, T* dx, T* dgamma, int64_t n) {
  // g = dy * gamma, h = x * rstd: dx = rstd * (g - h * mean(g h)).
  const T mean_gh =
      SumOf<T>(n, [=](int64_t i) { return dy[i] * gamma[i] * (x[i] * rstd); }) / static_cast<T>(n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T h = x[i] * rstd;
    const T d = dy[i];
    dgamma[i] += d * h;
    dx[i] = rstd * (d * gamma[i] - h * mean_gh);
  }
}

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

template <class T>
constexpr NormLoops<T> kNormLoops = {.layer_norm = LayerNormLoop<T>,
                                     .layer_norm_grad = LayerNormGradLoop<T>,
                                     .rms_norm = RmsNormLoop<T>,
                                     .rms_norm_grad = RmsNormGradLoop<T>,
                                     .centered_square_sum = CenteredSquareSumLoop<T>,
                                     .centered_scale = CenteredScaleLoop<T>,
                                     .centered_dot = CenteredDotLoop<T>,
                                     .centered_grad = CenteredGradLoop<T>,
                                     .add_centered_squares = AddCenteredSquaresLoop<T>,
                                     .centered_scale_each = CenteredScaleEachLoop<T>,
                                     .add_centered_dots = AddCenteredDotsLoop<T>,
                                     .centered_grad_each = CenteredGradEachLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(NormLoops<float>, BRAID_ISA::kNormLoops<float>)
BRAID_DEFINE_LOOPS(NormLoops<double>, BRAID_ISA::kNormLoops<double>)

}  // namespace braid::simd
