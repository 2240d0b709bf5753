// Activations with parameters and their gradients, clip, is_nan, is_inf.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/activation_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/pointwise_operators.h"

namespace braid::cpu {
namespace {

using simd::ActivationOp;
using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
KernelOr MakeForward(const KernelSpec& spec, const NamedActivation& activation) {
  const simd::ActivationParameters parameters = ParametersOf(activation, spec.attrs);
  const auto loop =
      simd::BestLoops<simd::ActivationLoops<T>>().activation[static_cast<int>(activation.op)];
  const int64_t n = spec.outputs[0].num_elements();
  return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
    const T* x = Input<T>(run, 0) + begin;
    T* out = Output<T>(run, 0) + begin;
    const auto part = [&](int64_t at, int64_t count) {
      loop(x + at, nullptr, out + at, count, parameters);
    };
    FetchAhead(size, part, x);
  });
}

template <class T>
KernelOr MakeBackward(const KernelSpec& spec, const NamedActivation& activation) {
  const simd::ActivationParameters parameters = ParametersOf(activation, spec.attrs);
  const auto loop =
      simd::BestLoops<simd::ActivationLoops<T>>().activation_grad[static_cast<int>(activation.op)];
  const int64_t n = spec.outputs[0].num_elements();
  return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
    const T *x = Input<T>(run, 0) + begin, *dy = Input<T>(run, 1) + begin;
    T* out = Output<T>(run, 0) + begin;
    const auto part = [&](int64_t at, int64_t count) {
      loop(x + at, dy + at, out + at, count, parameters);
    };
    FetchAhead(size, part, x, dy);
  });
}

template <class T>
KernelOr MakeIntegerClip(const KernelSpec& spec) {
  const T low = NearestTo<T>(std::ceil(spec.attrs.Double("low")));
  const T high = NearestTo<T>(std::floor(spec.attrs.Double("high")));
  const int64_t n = spec.outputs[0].num_elements();
  return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
    const T* x = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    for (int64_t i = begin; i < begin + size; ++i) out[i] = std::min(std::max(x[i], low), high);
  });
}

absl::StatusOr<PlannedKernel> PlanClip(const KernelSpec& spec, const KernelFactory& floating) {
  if (spec.outputs[0].dtype != spec.inputs[0].dtype) return UnsupportedTypes(spec);
  switch (spec.inputs[0].dtype) {
    case DType::kI32:
      return KernelFactory(MakeIntegerClip<int32_t>).PlanKernel(spec);
    case DType::kI64:
      return KernelFactory(MakeIntegerClip<int64_t>).PlanKernel(spec);
    case DType::kU8:
      return KernelFactory(MakeIntegerClip<uint8_t>).PlanKernel(spec);
    default:
      return floating.PlanKernel(spec);
  }
}

template <class T>
KernelOr MakeIsNan(const KernelSpec& spec, ElementType<T>) {
  const int64_t n = spec.outputs[0].num_elements();
  return MakeKernel([n](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    auto* out = Output<uint8_t>(run, 0);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] != x[i];
  });
}

template <class T>
KernelOr MakeIsInf(const KernelSpec& spec, ElementType<T>) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  // A NaN equals nothing.
  const T above = Flag(spec.attrs, "positive") ? kInfinity : std::numeric_limits<T>::quiet_NaN();
  const T below = Flag(spec.attrs, "negative") ? -kInfinity : std::numeric_limits<T>::quiet_NaN();
  const int64_t n = spec.outputs[0].num_elements();
  return MakeKernel([=](const KernelRun& run) {
    const T* x = Input<T>(run, 0);
    auto* out = Output<uint8_t>(run, 0);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] == above || x[i] == below;
  });
}

}  // namespace

absl::Status RegisterActivationKernels(KernelRegistry& registry) {
  for (const NamedActivation& activation : kNamedActivations) {
    KernelFactory forward =
        Widened(ForFloats([activation]<class T>(const KernelSpec& spec, ElementType<T>) {
          return MakeForward<T>(spec, activation);
        }));
    if (activation.op == ActivationOp::kClip) {
      forward = [floating = std::move(forward)](const KernelSpec& spec) {
        return PlanClip(spec, floating);
      };
    }
    BRAID_RETURN_IF_ERROR(registry.Register(activation.name, std::move(forward)));
    BRAID_RETURN_IF_ERROR(registry.Register(
        std::string(activation.name) + "_grad",
        Widened(ForFloats([activation]<class T>(const KernelSpec& spec, ElementType<T>) {
          return MakeBackward<T>(spec, activation);
        }))));
  }
  BRAID_RETURN_IF_ERROR(registry.Register(
      "is_nan", Widened(ForFloats([](const auto& s, auto type) { return MakeIsNan(s, type); }))));
  return registry.Register(
      "is_inf", Widened(ForFloats([](const auto& s, auto type) { return MakeIsInf(s, type); })));
}

}  // namespace braid::cpu
