// group_norm and its gradient: a group of one image is one run of memory.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

struct Layout {
  int64_t images = 0, groups = 0, channels = 0, space = 0;  // channels of one group
  int64_t elements() const { return channels * space; }     // of one group
};

// Parts of the channels must be whole groups.
absl::StatusOr<Layout> LayoutOf(const KernelSpec& spec) {
  const OperandSpec& x = spec.inputs[0];
  const AxisView view = ViewAround(x.shape(), 1);
  Layout layout;
  layout.images = view.outer;
  layout.space = view.inner;
  layout.channels = x.logical[1] / spec.attrs.Int("groups");
  layout.groups = layout.channels > 0 ? view.size / layout.channels : 0;
  const bool fits = layout.groups * layout.channels == view.size &&
                    (layout.channels == 0 || x.region.offset[1] % layout.channels == 0);
  if (fits) return layout;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s '%s': the part %s of x %s is not one of whole groups, which have %d channels", spec.op,
      spec.name, x.region.ToString(), x.logical.ToString(), layout.channels));
}

template <class T>
KernelOr MakeGroupNorm(const KernelSpec& spec, ElementType<T>) {
  BRAID_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(spec));
  const auto& row_loops = simd::BestLoops<simd::RowLoops<T>>();
  const auto& norm_loops = simd::BestLoops<simd::NormLoops<T>>();
  const double epsilon = spec.attrs.Double("epsilon");
  return MakeKernel([=](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    const T* gamma = Input<T>(run, 1);
    const T* beta = Input<T>(run, 2);
    T* y = Output<T>(run, 0);
    T* means = Output<T>(run, 1);
    T* rstds = Output<T>(run, 2);
    const int64_t n = layout.elements();
    for (int64_t i = 0; i < layout.images * layout.groups; ++i) {
      const T mean = row_loops.sum(x, n) / static_cast<T>(std::max<int64_t>(1, n));
      const double variance =
          static_cast<double>(norm_loops.centered_square_sum(x, mean, n)) / std::max<int64_t>(1, n);
      const T rstd = static_cast<T>(1 / std::sqrt(variance + epsilon));
      const int64_t first = i % layout.groups * layout.channels;
      for (int64_t c = 0; c < layout.channels; ++c, x += layout.space, y += layout.space) {
        norm_loops.centered_scale(x, mean, gamma[first + c] * rstd, beta[first + c], y,
                                  layout.space);
      }
      means[i] = mean;
      rstds[i] = rstd;
    }
  });
}

// With xn = (x - mean) * rstd and means over the group:
// dx = rstd * (gamma * dy - mean(gamma * dy) - xn * mean(gamma * dy * xn)).
template <class T>
KernelOr MakeGroupNormGrad(const KernelSpec& spec, ElementType<T>) {
  BRAID_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(spec));
  const auto& loops = simd::BestLoops<simd::NormLoops<T>>();
  const int64_t channels = layout.groups * layout.channels;
  return MakeKernel([=, dgammas = std::vector<double>(channels),
                     dbetas = std::vector<double>(channels)](const KernelRun& run) mutable {
    const T* x = Input<T>(run, 0);
    const T* gamma = Input<T>(run, 1);
    const T* means = Input<T>(run, 2);
    const T* rstds = Input<T>(run, 3);
    const T* dy = Input<T>(run, 4);
    T* dx = Output<T>(run, 0);
    std::fill(dgammas.begin(), dgammas.end(), 0);
    std::fill(dbetas.begin(), dbetas.end(), 0);
    const double count = static_cast<double>(std::max<int64_t>(1, layout.elements()));
    for (int64_t i = 0, at = 0; i < layout.images * layout.groups; ++i) {
      const int64_t first = i % layout.groups * layout.channels;
      const double rstd = rstds[i];
      double mean_dy = 0, mean_dot = 0;
      for (int64_t c = 0; c < layout.channels; ++c) {
        T sum, dot;
        const int64_t row = at + c * layout.space;
        loops.centered_dot(x + row, means[i], dy + row, layout.space, &sum, &dot);
        dgammas[first + c] += dot * rstd;
        dbetas[first + c] += sum;
        mean_dy += static_cast<double>(gamma[first + c]) * sum / count;
        mean_dot += static_cast<double>(gamma[first + c]) * dot * rstd / count;
      }
      const T of_x = static_cast<T>(-rstd * rstd * mean_dot);
      const T addend = static_cast<T>(-rstd * mean_dy);
      for (int64_t c = 0; c < layout.channels; ++c, at += layout.space) {
        loops.centered_grad(x + at, means[i], dy + at,
                            {static_cast<T>(gamma[first + c] * rstd), of_x, addend}, dx + at,
                            layout.space);
      }
    }
    std::copy(dgammas.begin(), dgammas.end(), Output<T>(run, 1));
    std::copy(dbetas.begin(), dbetas.end(), Output<T>(run, 2));
  });
}

}  // namespace

absl::Status RegisterGroupNormKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "group_norm",
      Widened(ForFloats([](const auto& s, auto type) { return MakeGroupNorm(s, type); }))));
  return registry.Register(
      "group_norm_grad",
      Widened(ForFloats([](const auto& s, auto type) { return MakeGroupNormGrad(s, type); })));
}

}  // namespace braid::cpu
