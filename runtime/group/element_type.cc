#include "runtime/group/element_type.h"

#include <concepts>
#include <functional>
#include <iterator>
#include <optional>

#include "runtime/device/box.h"

namespace braid::dist {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// T as it is computed in.
template <typename T>
struct Wide {
  using type = T;
};
template <>
struct Wide<Float16> {
  using type = float;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};
// Signed overflow wraps, as it does on the wire.
template <std::signed_integral T>
struct Wide<T> {
  using type = std::make_unsigned_t<T>;
};

// Calls f(std::type_identity<T>{}); kBytes has no T.
template <typename F>
auto VisitElement(ElementType type, F&& f) -> decltype(f(std::type_identity<float>{})) {
  switch (type) {
    case ElementType::kI8:
      return f(std::type_identity<int8_t>{});
    case ElementType::kU8:
      return f(std::type_identity<uint8_t>{});
    case ElementType::kI16:
      return f(std::type_identity<int16_t>{});
    case ElementType::kU16:
      return f(std::type_identity<uint16_t>{});
    case ElementType::kI32:
      return f(std::type_identity<int32_t>{});
    case ElementType::kU32:
      return f(std::type_identity<uint32_t>{});
    case ElementType::kI64:
      return f(std::type_identity<int64_t>{});
    case ElementType::kU64:
      return f(std::type_identity<uint64_t>{});
    case ElementType::kF16:
      return f(std::type_identity<Float16>{});
    case ElementType::kBF16:
      return f(std::type_identity<BFloat16>{});
    case ElementType::kF32:
      return f(std::type_identity<float>{});
    case ElementType::kF64:
      return f(std::type_identity<double>{});
    case ElementType::kC64:
      return f(std::type_identity<std::complex<float>>{});
    case ElementType::kC128:
      return f(std::type_identity<std::complex<double>>{});
    case ElementType::kBool:
      return f(std::type_identity<bool>{});
    case ElementType::kBytes:
      break;
  }
  return {};
}

template <typename T, typename Fn>
void ForEachPair(void* dst, const void* a, const void* b, int64_t n) {
  auto* out = static_cast<T*>(dst);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(Fn{}(left[i], right[i]));
}

template <typename T>
struct Plus {
  T operator()(T a, T b) const {
    using W = typename Wide<T>::type;
    return static_cast<T>(static_cast<W>(static_cast<W>(a) + static_cast<W>(b)));
  }
};
template <>
struct Plus<bool> : std::logical_or<bool> {};
template <typename T>
struct Times {
  T operator()(T a, T b) const {
    using W = typename Wide<T>::type;
    // Narrow unsigned numbers would be multiplied as int, whose overflow is undefined.
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(static_cast<W>(a)) * static_cast<W>(b));
    } else {
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    }
  }
};
template <>
struct Times<bool> : std::logical_and<bool> {};
// A NaN wins, whichever side it is on, as in NumPy.
template <typename T>
struct Less {
  using W = std::conditional_t<kIsHalf<T>, float, T>;
  T operator()(T a, T b) const {
    const W x = static_cast<W>(a), y = static_cast<W>(b);
    return x < y || x != x ? a : b;
  }
};
template <typename T>
struct More {
  using W = std::conditional_t<kIsHalf<T>, float, T>;
  T operator()(T a, T b) const {
    const W x = static_cast<W>(a), y = static_cast<W>(b);
    return x > y || x != x ? a : b;
  }
};
template <typename T>
struct And {
  T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
template <typename T>
struct Or {
  T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
template <typename T>
struct Xor {
  T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};

template <typename T>
ReduceFn ReductionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      if constexpr (std::is_integral_v<T>) return nullptr;
      [[fallthrough]];
    case ReduceOp::kSum:
      return ForEachPair<T, Plus<T>>;
    case ReduceOp::kProduct:
      return ForEachPair<T, Times<T>>;
    case ReduceOp::kMin:
      if constexpr (!kIsComplex<T>) return ForEachPair<T, Less<T>>;
      break;
    case ReduceOp::kMax:
      if constexpr (!kIsComplex<T>) return ForEachPair<T, More<T>>;
      break;
    case ReduceOp::kAnd:
      if constexpr (std::is_integral_v<T>) return ForEachPair<T, And<T>>;
      break;
    case ReduceOp::kOr:
      if constexpr (std::is_integral_v<T>) return ForEachPair<T, Or<T>>;
      break;
    case ReduceOp::kXor:
      if constexpr (std::is_integral_v<T>) return ForEachPair<T, Xor<T>>;
      break;
  }
  return nullptr;
}

// What plans add by, where they know type and operation.
ReduceFn FindCombination(ElementType type, ReduceOp op) {
  std::optional<DType> dtype;
  if (type != ElementType::kBool) dtype = ParseDType(NameOf(type));
  if (!dtype.has_value()) return nullptr;
  switch (op) {
    case ReduceOp::kSum:
      return CombineFunction(*dtype, Sbp::Kind::kPartialSum);
    case ReduceOp::kMin:
      return CombineFunction(*dtype, Sbp::Kind::kPartialMin);
    case ReduceOp::kMax:
      return CombineFunction(*dtype, Sbp::Kind::kPartialMax);
    default:
      return nullptr;
  }
}

template <typename T>
void Divide(void* data, int64_t by, int64_t n) {
  auto* values = static_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kIsHalf<T>) {
      values[i] = static_cast<T>(static_cast<float>(values[i]) / static_cast<float>(by));
    } else if constexpr (kIsComplex<T>) {
      values[i] /= static_cast<typename T::value_type>(by);
    } else {
      values[i] /= static_cast<T>(by);
    }
  }
}

}  // namespace

std::string_view NameOf(ElementType type) {
  static constexpr std::string_view kNames[] = {"i8",  "u8",   "i16",  "u16",  "i32", "u32",
                                                "i64", "u64",  "f16",  "bf16", "f32", "f64",
                                                "c64", "c128", "bool", "bytes"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::string_view NameOf(ReduceOp op) {
  static constexpr std::string_view kNames[] = {"sum", "average", "product", "min",
                                                "max", "and",     "or",      "xor"};
  const auto index = static_cast<size_t>(op);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

ElementType ElementTypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return ElementType::kF32;
    case DType::kF64:
      return ElementType::kF64;
    case DType::kBF16:
      return ElementType::kBF16;
    case DType::kF16:
      return ElementType::kF16;
    case DType::kI32:
      return ElementType::kI32;
    case DType::kI64:
      return ElementType::kI64;
    case DType::kU8:
      return ElementType::kU8;
    case DType::kBool:
      return ElementType::kBool;
    case DType::kI8:
      return ElementType::kI8;
    case DType::kI16:
      return ElementType::kI16;
    case DType::kU16:
      return ElementType::kU16;
    case DType::kU32:
      return ElementType::kU32;
    case DType::kU64:
      return ElementType::kU64;
    default:
      return ElementType::kBytes;  // coded numbers
  }
}

int64_t SizeOf(ElementType type) {
  return VisitElement(type,
                      [](auto tag) -> int64_t { return sizeof(typename decltype(tag)::type); });
}

ReduceFn FindReduction(ElementType type, ReduceOp op) {
  if (const ReduceFn combine = FindCombination(type, op); combine != nullptr) return combine;
  return VisitElement(type,
                      [op](auto tag) { return ReductionOf<typename decltype(tag)::type>(op); });
}

DivideFn FindDivision(ElementType type) {
  return VisitElement(type, [](auto tag) -> DivideFn {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      return nullptr;
    } else {
      return Divide<T>;
    }
  });
}

}  // namespace braid::dist
