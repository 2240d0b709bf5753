// Softmax, its logarithm and their gradients, row by row.
#include "runtime/kernels/cpu/softmax_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
T SumExpLoop(const T* x, T max, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return Exp(x[i] - max); });
}

template <class T>
void SoftmaxLoop(const T* x, T* y, int64_t n, T scale) {
  const T extreme = scale < T{0} ? MinLoop(x, n) : MaxLoop(x, n);
  const T sum = ExpAndSum(x, y, n, scale, scale * extreme);
  const T factor = T{1} / sum;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

template <class T>
void SoftmaxGradLoop(const T* y, const T* dy, T* dx, int64_t n, T scale) {
  const T dot = DotLoop(y, dy, n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * y[i] * (dy[i] - dot);
}

template <class T>
void LogSoftmaxLoop(const T* x, T* y, int64_t n) {
  const T max = MaxLoop(x, n);
  const T log_sum = Log(SumExpLoop(x, max, n));
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - max - log_sum;
}

template <class T>
void LogSoftmaxGradLoop(const T* y, const T* dy, T* dx, int64_t n) {
  const T sum = SumLoop(dy, n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - Exp(y[i]) * sum;
}

template <class T>
void ScaledExpLoop(const T* x, T* y, int64_t n, T max, T factor) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = factor * Exp(x[i] - max);
}

template <class T>
constexpr SoftmaxLoops<T> kSoftmaxLoops = {.sum_exp = SumExpLoop<T>,
                                           .softmax = SoftmaxLoop<T>,
                                           .softmax_grad = SoftmaxGradLoop<T>,
                                           .log_softmax = LogSoftmaxLoop<T>,
                                           .log_softmax_grad = LogSoftmaxGradLoop<T>,
                                           .scaled_exp = ScaledExpLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(SoftmaxLoops<float>, BRAID_ISA::kSoftmaxLoops<float>)
BRAID_DEFINE_LOOPS(SoftmaxLoops<double>, BRAID_ISA::kSoftmaxLoops<double>)

}  // namespace braid::simd
