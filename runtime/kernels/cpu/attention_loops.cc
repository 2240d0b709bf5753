// Scores of attention to weights, and their gradient.
#include "runtime/kernels/cpu/attention_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
T ExpAndSumLoop(const T* x, T* y, int64_t n, T scale, T max) {
  return ExpAndSum(x, y, n, scale, max);
}

template <class T>
void AttentionWeightsGradLoop(T* scores, T* gradient, int64_t n, const AttentionRow& row) {
  const T scale = static_cast<T>(row.scale), lse = static_cast<T>(row.lse);
  const T delta = static_cast<T>(row.delta), factor = static_cast<T>(row.factor);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T p = Exp(scale * scores[i] - lse);
    scores[i] = p;
    gradient[i] = factor * p * (gradient[i] - delta);
  }
}

template <class T>
void ScaleAddLoop(const T* a, T scale, T* x, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = scale * x[i] + a[i];
}

template <class T>
void ScaleWhereLoop(const uint8_t* keep, T scale, T* x, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = keep[i] != 0 ? scale * x[i] : -Infinity<T>();
}

template <class T>
constexpr AttentionLoops<T> kAttentionLoops = {
    .exp_and_sum = ExpAndSumLoop<T>,
    .attention_weights_grad = AttentionWeightsGradLoop<T>,
    .scale_add = ScaleAddLoop<T>,
    .scale_where = ScaleWhereLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(AttentionLoops<float>, BRAID_ISA::kAttentionLoops<float>)
BRAID_DEFINE_LOOPS(AttentionLoops<double>, BRAID_ISA::kAttentionLoops<double>)

}  // namespace braid::simd
