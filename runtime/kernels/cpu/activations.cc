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

namespace braid::cpu {
namespace {

using simd::ActivationOp;
using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

struct Activation {
  const char* name;
  ActivationOp op;
  const char* attrs[3];  // which become the loop's a, b and c; null: none
};
constexpr Activation kActivations[] = {
    {"silu", ActivationOp::kSilu, {}},
    {"mish", ActivationOp::kMish, {}},
    {"elu", ActivationOp::kElu, {"alpha", "gamma", "rate"}},
    {"leaky_relu", ActivationOp::kLeakyRelu, {"alpha"}},
    {"hard_sigmoid", ActivationOp::kHardSigmoid, {"alpha", "beta"}},
    {"hard_swish", ActivationOp::kHardSwish, {}},
    {"clip", ActivationOp::kClip, {"low", "high"}},
    {"softplus", ActivationOp::kSoftplus, {"beta"}},
    {"log_sigmoid", ActivationOp::kLogSigmoid, {}},
    {"softsign", ActivationOp::kSoftsign, {}},
    {"thresholded_relu", ActivationOp::kThresholdedRelu, {"alpha"}},
    {"shrink", ActivationOp::kShrink, {"lambda", "bias"}},
    {"huber", ActivationOp::kHuber, {"delta"}},
};

simd::ActivationParameters ParametersOf(const Activation& activation, const Attrs& attrs) {
  double values[3] = {};
  for (int i = 0; i < 3 && activation.attrs[i] != nullptr; ++i) {
    values[i] = attrs.Double(activation.attrs[i]);
  }
  return {values[0], values[1], values[2]};
}

template <class T>
KernelOr MakeForward(const KernelSpec& spec, const Activation& activation) {
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
KernelOr MakeBackward(const KernelSpec& spec, const Activation& activation) {
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

// The nearest T to a bound, which may be infinite.
template <class T>
T NearestTo(double value) {
  // The upper end of int64_t is not a double: what reaches it is cut off before the conversion.
  if (!(value > static_cast<double>(std::numeric_limits<T>::min()))) {
    return std::numeric_limits<T>::min();
  }
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
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
  for (const Activation& activation : kActivations) {
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
