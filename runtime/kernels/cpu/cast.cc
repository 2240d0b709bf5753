// Casts between all element types, and the same bits seen as another type.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/coded_elements.h"
#include "runtime/dtype_traits.h"
#include "runtime/kernels/cast_encoding.h"
#include "runtime/kernels/cpu/cast_loops.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// An element of kBool: any number that is not zero is true.
struct Bool {
  uint8_t value;
};
template <class T>
using Element = std::conditional_t<std::is_same_v<T, bool>, Bool, T>;

template <class To, class From>
To Convert(From from) {
  if constexpr (std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>) {
    return Convert<To>(static_cast<float>(from));
  } else if constexpr (std::is_same_v<From, Bool>) {
    return Convert<To>(static_cast<uint8_t>(from.value != 0));
  } else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>) {
    return To(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<uint8_t>(from != From{0})};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Out of range: the nearest end; NaN: 0. The upper end itself may not be a From.
    if (from != from) return 0;
    if (from <= static_cast<From>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    if (from >= static_cast<From>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return static_cast<To>(from);
  } else {
    return static_cast<To>(from);  // of a whole number its lowest bits
  }
}

using CastFn = void (*)(const void* from, void* to, int64_t n);

template <class From, class To>
void CastLoop(const void* from_data, void* to_data, int64_t n) {
  const auto* from = static_cast<const From*>(from_data);
  auto* to = static_cast<To*>(to_data);
  for (int64_t i = 0; i < n; ++i) to[i] = Convert<To>(from[i]);
}

// Neither is coded.
CastFn CastBetween(DType from, DType to) {
  return VisitDType(from, [to]<class From>(std::type_identity<From>) {
    return VisitDType(to, []<class To>(std::type_identity<To>) -> CastFn {
      return CastLoop<Element<From>, Element<To>>;
    });
  });
}

std::optional<simd::CastType> CastTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return simd::CastType::kF32;
    case DType::kF64:
      return simd::CastType::kF64;
    case DType::kI32:
      return simd::CastType::kI32;
    case DType::kI64:
      return simd::CastType::kI64;
    case DType::kU8:
      return simd::CastType::kU8;
    case DType::kI8:
      return simd::CastType::kI8;
    default:
      return std::nullopt;
  }
}

// By vectors, if there is such a loop.
CastFn FastCast(DType from, DType to) {
  const auto x = CastTypeOf(from), out = CastTypeOf(to);
  if (!x || !out) return CastBetween(from, to);
  return simd::BestLoops<simd::CastLoops>().cast[static_cast<int>(*x)][static_cast<int>(*out)];
}

// All numbers of a coded type, as `to` holds them: their sizes are small.
KernelOr MakeCastFromCoded(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  std::array<float, 256> numbers = {};
  for (int code = 0; code < 256; ++code) {
    numbers[code] = DecodeElement(from, static_cast<uint8_t>(code));
  }
  alignas(8) std::array<char, 256 * 8> table = {};
  const size_t size = SizeOf(to);
  if (IsCoded(to)) {
    const Encoding encoding = EncodingOf(spec.attrs);
    for (int code = 0; code < 256; ++code) {
      table[code] = static_cast<char>(EncodeElement(to, numbers[code], encoding));
    }
  } else {
    CastBetween(DType::kF32, to)(numbers.data(), table.data(), 256);
  }
  return MakeKernel([table, size, n = spec.outputs[0].num_elements()](const KernelRun& run) {
    const auto* x = Input<uint8_t>(run, 0);
    auto* out = Output<char>(run, 0);
    const auto look = [&](auto of_size) {
      using Bits = decltype(of_size);
      const auto* entries = reinterpret_cast<const Bits*>(table.data());
      auto* to_bits = reinterpret_cast<Bits*>(out);
      for (int64_t i = 0; i < n; ++i) to_bits[i] = entries[x[i]];
    };
    if (size == 1) return look(uint8_t());
    if (size == 2) return look(uint16_t());
    if (size == 4) return look(uint32_t());
    look(uint64_t());
  });
}

// From what is not coded, by way of a wide type in pieces that the cache holds.
template <class Wide>
KernelOr MakeCastToCoded(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  const Encoding encoding = EncodingOf(spec.attrs);
  const CastFn widen = CastBetween(from, kDTypeOf<Wide>);
  const auto from_size = static_cast<int64_t>(SizeOf(from));
  return MakeKernel([=, n = spec.outputs[0].num_elements()](const KernelRun& run) {
    constexpr int64_t kPiece = 512;
    Wide wide[kPiece];
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      const int64_t size = std::min(kPiece, n - begin);
      widen(Input<char>(run, 0) + begin * from_size, wide, size);
      uint8_t* out = Output<uint8_t>(run, 0) + begin;
      for (int64_t i = 0; i < size; ++i) {
        if constexpr (std::is_integral_v<Wide>) {
          out[i] = EncodeWhole(to, wide[i]);
        } else {
          out[i] = EncodeElement(to, wide[i], encoding);
        }
      }
    }
  });
}

std::unique_ptr<Kernel> MakeCopy(const KernelSpec& spec) {
  const int64_t bytes =
      spec.outputs[0].num_elements() * static_cast<int64_t>(SizeOf(spec.outputs[0].dtype));
  return MakeKernel([bytes](const KernelRun& run) {
    if (run.outputs[0] != run.inputs[0]) std::memcpy(run.outputs[0], run.inputs[0], bytes);
  });
}

KernelOr MakeCast(const KernelSpec& spec) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  const int64_t n = spec.outputs[0].num_elements();
  if (from == to) return MakeCopy(spec);
  if (IsCoded(from)) return MakeCastFromCoded(spec);
  if (IsCoded(to)) {
    const bool is_whole = IsWholeNumber(to) && !IsFloating(from);
    return is_whole ? MakeCastToCoded<int64_t>(spec) : MakeCastToCoded<float>(spec);
  }
  const auto& loops = simd::BestLoops<simd::ElementwiseLoops>();
  if (to == DType::kF32 && IsNarrow(from)) {
    const auto loop = from == DType::kBF16 ? loops.bf16_to_f32 : loops.f16_to_f32;
    return MakeKernel(
        [=](const KernelRun& run) { loop(Input<uint16_t>(run, 0), Output<float>(run, 0), n); });
  }
  if (from == DType::kF32 && IsNarrow(to)) {
    const auto loop = to == DType::kBF16 ? loops.f32_to_bf16 : loops.f32_to_f16;
    return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
      const auto* x = Input<float>(run, 0) + begin;
      auto* out = Output<uint16_t>(run, 0) + begin;
      FetchAhead(
          size, [&](int64_t at, int64_t part) { loop(x + at, out + at, part); }, x);
    });
  }
  const auto from_size = static_cast<int64_t>(SizeOf(from));
  const auto to_size = static_cast<int64_t>(SizeOf(to));
  const CastFn loop = FastCast(from, to);
  return MakePointwise(n, [=](const KernelRun& run, int64_t begin, int64_t size) {
    loop(Input<char>(run, 0) + begin * from_size, Output<char>(run, 0) + begin * to_size, size);
  });
}

}  // namespace

absl::Status RegisterCastKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("cast", MakeCast));
  return registry.Register("bit_cast", [](const KernelSpec& s) -> KernelOr { return MakeCopy(s); });
}

}  // namespace braid::cpu
