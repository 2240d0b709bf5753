// Values out of nothing: constant, literal, iota, step, random_uniform, random_normal; and dropout.
// Random numbers are those of the element's logical index, whatever the region.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/coded_elements.h"
#include "runtime/dtype_traits.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/random_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

template <class T>
KernelOr MakeConstantOf(const KernelSpec& spec, T value) {
  const int64_t n = spec.outputs[0].num_elements();
  return MakeKernel([=](const KernelRun& run) { std::fill_n(Output<T>(run, 0), n, value); });
}

// What a cast of a value outside T's range would be, nobody knows.
template <class T>
KernelOr MakeIntegerConstant(const KernelSpec& spec, double value) {
  const double whole = std::trunc(value);
  if (whole >= static_cast<double>(std::numeric_limits<T>::min()) &&
      whole < std::ldexp(1.0, std::numeric_limits<T>::digits)) {
    return MakeConstantOf<T>(spec, static_cast<T>(value));
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s '%s': the value %g does not fit into %s",
                                                    spec.op, spec.name, value,
                                                    ToString(spec.outputs[0].dtype)));
}

KernelOr MakeConstant(const KernelSpec& spec) {
  const double value = spec.attrs.Double("value");
  const DType dtype = spec.outputs[0].dtype;
  if (IsCoded(dtype)) {
    return MakeConstantOf<uint8_t>(spec, EncodeElement(dtype, static_cast<float>(value)));
  }
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> KernelOr {
    if constexpr (std::is_same_v<T, bool>) {
      return MakeConstantOf<uint8_t>(spec, value != 0 ? 1 : 0);
    } else if constexpr (std::is_integral_v<T>) {
      return MakeIntegerConstant<T>(spec, value);
    } else if constexpr (std::is_same_v<T, double>) {
      return MakeConstantOf<double>(spec, value);
    } else {
      return MakeConstantOf<T>(spec, T(static_cast<float>(value)));
    }
  });
}

// An element as a literal's attribute has it.
template <class T>
T LiteralElement(int64_t element) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(element);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(element);
  } else {
    return T(static_cast<float>(std::bit_cast<double>(element)));
  }
}

KernelOr MakeLiteral(const KernelSpec& spec) {
  const OperandSpec& out = spec.outputs[0];
  return VisitDType(out.dtype, [&]<class T>(std::type_identity<T>) -> KernelOr {
    std::vector<std::byte> bytes;  // of all elements
    for (int64_t element : spec.attrs.Ints("elements")) {
      const T value = LiteralElement<T>(element);
      const auto* from = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), from, from + sizeof(T));
    }
    return MakeKernel([bytes = std::move(bytes), walk = RegionWalk(out)](const KernelRun& run) {
      walk.ForEachRun(run.micro_batch, [&](int64_t local, int64_t logical, int64_t n) {
        std::memcpy(Output<std::byte>(run, 0) + local * sizeof(T),
                    bytes.data() + logical * sizeof(T), n * sizeof(T));
      });
    });
  });
}

template <class T>
KernelOr MakeIotaOf(const KernelSpec& spec) {
  const OperandSpec& out = spec.outputs[0];
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  return MakeKernel([out, axis, view = ViewAround(out.shape(), axis)](const KernelRun& run) {
    const int64_t first = OffsetAt(out, axis, run.micro_batch);
    T* to = Output<T>(run, 0);
    for (int64_t outer = 0; outer < view.outer; ++outer) {
      for (int64_t i = 0; i < view.size; ++i, to += view.inner) {
        std::fill_n(to, view.inner, static_cast<T>(first + i));
      }
    }
  });
}

KernelOr MakeIota(const KernelSpec& spec) {
  switch (spec.outputs[0].dtype) {
    case DType::kF32:
      return MakeIotaOf<float>(spec);
    case DType::kF64:
      return MakeIotaOf<double>(spec);
    case DType::kI32:
      return MakeIotaOf<int32_t>(spec);
    case DType::kI64:
      return MakeIotaOf<int64_t>(spec);
    case DType::kU8:
      return MakeIotaOf<uint8_t>(spec);
    default:
      return UnsupportedTypes(spec);
  }
}

KernelOr MakeStep(const KernelSpec& spec) {
  if (spec.outputs[0].dtype != DType::kI64) return UnsupportedTypes(spec);
  return MakeKernel([](const KernelRun& run) { *Output<int64_t>(run, 0) = run.step; });
}

// f32 is made of the 24-bit uniform numbers, f64 of the 53-bit ones.
template <class T>
KernelOr MakeUniform(const KernelSpec& spec, ElementType<T>) {
  const double low = spec.attrs.Double("low"), width = spec.attrs.Double("high") - low;
  return MakeKernel([=, seed = spec.seed, name = StableHash(spec.name),
                     walk = RegionWalk(spec.outputs[0])](const KernelRun& run) {
    const RandomKey key = MakeRandomKey(seed, name, run.step);
    T* out = Output<T>(run, 0);
    walk.ForEachRun(run.micro_batch, [&](int64_t local, int64_t logical, int64_t n) {
      T* to = out + local;
      if constexpr (sizeof(T) == 4) {
        FillUniform(key, logical, n, to);
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(low + width * to[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = low + width * UniformDoubleAt(key, logical + i);
      }
    });
  });
}

template <class T>
KernelOr MakeNormal(const KernelSpec& spec, ElementType<T>) {
  const double mean = spec.attrs.Double("mean"), stddev = spec.attrs.Double("stddev");
  return MakeKernel([=, seed = spec.seed, name = StableHash(spec.name),
                     walk = RegionWalk(spec.outputs[0])](const KernelRun& run) {
    const RandomKey key = MakeRandomKey(seed, name, run.step);
    T* out = Output<T>(run, 0);
    walk.ForEachRun(run.micro_batch, [&](int64_t local, int64_t logical, int64_t n) {
      T* to = out + local;
      if constexpr (sizeof(T) == 4) {
        FillNormal(key, logical, n, to);
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(mean + stddev * to[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = mean + stddev * NormalAt(key, logical + i);
      }
    });
  });
}

template <class T>
KernelOr MakeDropout(const KernelSpec& spec, ElementType<T>) {
  const double rate = spec.attrs.Double("rate");
  const T scale = static_cast<T>(1 / (1 - rate));
  const auto loop = simd::BestLoops<simd::RandomLoops<T>>().dropout;
  return MakeKernel([=, rate = static_cast<float>(rate), seed = spec.seed,
                     name = StableHash(spec.attrs.String("key")),
                     walk = RegionWalk(spec.outputs[0])](const KernelRun& run) {
    const RandomKey key = MakeRandomKey(seed, name, run.step);
    const T* x = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    walk.ForEachRun(run.micro_batch, [&](int64_t local, int64_t logical, int64_t n) {
      constexpr int64_t kChunk = 2048;
      uint32_t words[kChunk];
      for (int64_t i = 0; i < n;) {
        // Chunks end where Philox blocks do.
        const int64_t size = std::min(kChunk - (logical + i) % 4, n - i);
        FillUint32(key, logical + i, size, words);
        loop(x + local + i, words, out + local + i, size, rate, scale);
        i += size;
      }
    });
  });
}

}  // namespace

absl::Status RegisterRandomKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("constant", MakeConstant));
  BRAID_RETURN_IF_ERROR(registry.Register("literal", MakeLiteral));
  BRAID_RETURN_IF_ERROR(registry.Register("iota", Widened(MakeIota)));
  BRAID_RETURN_IF_ERROR(registry.Register("step", MakeStep));
  const auto add = [&](const char* name, auto make) {
    return registry.Register(name, Widened(ForFloats(make)));
  };
  BRAID_RETURN_IF_ERROR(
      add("random_uniform", [](const auto& s, auto type) { return MakeUniform(s, type); }));
  BRAID_RETURN_IF_ERROR(
      add("random_normal", [](const auto& s, auto type) { return MakeNormal(s, type); }));
  return add("dropout", [](const auto& s, auto type) { return MakeDropout(s, type); });
}

}  // namespace braid::cpu
