// rms_norm and its gradient, one fused loop per row.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
KernelOr MakeRmsNorm(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::NormLoops<T>>().rms_norm;
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  const T epsilon = static_cast<T>(spec.attrs.Double("epsilon"));
  return MakeKernel([=](const KernelRun& run) {
    for (int64_t row = 0; row < view.outer; ++row) {
      const int64_t at = row * view.size;
      Output<T>(run, 1)[row] =
          loop(Input<T>(run, 0) + at, Input<T>(run, 1), Output<T>(run, 0) + at, view.size, epsilon);
    }
  });
}

template <class T>
KernelOr MakeRmsNormGrad(const KernelSpec& spec, ElementType<T>) {
  const auto loop = simd::BestLoops<simd::NormLoops<T>>().rms_norm_grad;
  const auto add_scaled = simd::BestLoops<simd::RowLoops<T>>().add_scaled;
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  const int64_t n = view.size;
  return MakeKernel([=, block = std::vector<T>(n)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* gamma = Input<T>(run, 1);
    const T* rstd = Input<T>(run, 2);
    const T* dy = Input<T>(run, 3);
    T* dx = Output<T>(run, 0);
    T* dgamma = Output<T>(run, 1);
    std::fill_n(dgamma, n, T{0});
    for (int64_t begin = 0; begin < view.outer; begin += simd::kRowBlock) {
      std::fill(block.begin(), block.end(), T{0});
      for (int64_t row = begin; row < std::min(begin + simd::kRowBlock, view.outer); ++row) {
        const int64_t at = row * n;
        loop(x + at, gamma, rstd[row], dy + at, dx + at, block.data(), n);
      }
      add_scaled(block.data(), T{1}, dgamma, n);
    }
  });
}

}  // namespace

absl::Status RegisterRmsNormKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "rms_norm",
      Widened(ForFloats([](const auto& s, auto type) { return MakeRmsNorm(s, type); }))));
  return registry.Register(
      "rms_norm_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakeRmsNormGrad(s, type); })));
}

}  // namespace braid::cpu
