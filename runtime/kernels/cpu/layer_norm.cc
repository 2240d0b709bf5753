// layer_norm and its gradient, one fused loop per row.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
KernelOr MakeLayerNorm(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::NormLoops<T>>().layer_norm;
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  const T epsilon = static_cast<T>(spec.attrs.Double("epsilon"));
  const int64_t elements = view.outer * view.size;
  return MakePointwise(elements, view.size, [=](const KernelRun& run, int64_t begin, int64_t size) {
    if (size == 0) return;
    const T* gamma = Input<T>(run, 1);
    const T* beta = Input<T>(run, 2);
    const int64_t end = (begin + size) / view.size;
    for (int64_t row = begin / view.size; row < end; ++row) {
      const int64_t at = row * view.size;
      loop(Input<T>(run, 0) + at, gamma, beta, Output<T>(run, 0) + at, view.size, epsilon,
           Output<T>(run, 1) + row, Output<T>(run, 2) + row);
    }
  });
}

template <class T>
KernelOr MakeLayerNormGrad(const KernelSpec& spec, int64_t block_elements) {
  const auto loop = simd::BestLoops<simd::NormLoops<T>>().layer_norm_grad;
  const auto add_scaled = simd::BestLoops<simd::RowLoops<T>>().add_scaled;
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  const int64_t n = view.size;
  const auto run_part = [=, block = std::vector<T>(block_elements)](
                            const KernelRun& run, int64_t begin, int64_t size) mutable {
    const T* x = Input<T>(run, 0);
    const T* gamma = Input<T>(run, 1);
    const T* mean = Input<T>(run, 2);
    const T* rstd = Input<T>(run, 3);
    const T* dy = Input<T>(run, 4);
    T* dx = Output<T>(run, 0);
    T* dgamma = Output<T>(run, 1);
    T* dbeta = Output<T>(run, 2);
    if (begin == 0) {
      std::fill_n(dgamma, n, T{0});
      std::fill_n(dbeta, n, T{0});
    }
    if (size == 0) return;
    T* block_dgamma = block.data();
    T* block_dbeta = block.data() + n;
    const int64_t end = (begin + size) / n;
    for (int64_t row = begin / n; row < end; ++row) {
      if (row % simd::kRowBlock == 0) std::fill(block.begin(), block.end(), T{0});
      const int64_t at = row * n;
      PrefetchBehind(x + at, n);
      PrefetchBehind(dy + at, n);
      loop(x + at, gamma, mean[row], rstd[row], dy + at, dx + at, block_dgamma, block_dbeta, n);
      if ((row + 1) % simd::kRowBlock != 0 && row + 1 != view.outer) continue;
      add_scaled(block_dgamma, T{1}, dgamma, n);
      add_scaled(block_dbeta, T{1}, dbeta, n);
    }
  };
  return MakePointwise(view.outer * n, n, run_part);
}

// It keeps the sums of a block of rows: of dgamma and of dbeta.
template <class T>
absl::StatusOr<PlannedKernel> PlanLayerNormGrad(const KernelSpec& spec, ElementType<T>) {
  const Shape& shape = spec.inputs[0].shape();
  const int64_t elements = 2 * shape[shape.rank() - 1];
  return PlannedKernel{.memory = {.own = elements * static_cast<int64_t>(sizeof(T))},
                       .make = [=] { return MakeLayerNormGrad<T>(spec, elements); }};
}

}  // namespace

absl::Status RegisterLayerNormKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "layer_norm",
      Widened(ForFloats([](const auto& s, auto type) { return MakeLayerNorm(s, type); }))));
  return registry.Register(
      "layer_norm_grad",
      Widened(ForFloats([](const auto& s, auto type) { return PlanLayerNormGrad(s, type); })));
}

}  // namespace braid::cpu
