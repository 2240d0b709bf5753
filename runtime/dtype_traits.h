// Which C++ type an element type is in host memory, both ways.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "graph/dtype.h"
#include "runtime/base/half.h"

namespace braid {

template <typename T>
struct DTypeTraits;
template <>
struct DTypeTraits<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeTraits<double> : std::integral_constant<DType, DType::kF64> {};
template <>
struct DTypeTraits<BFloat16> : std::integral_constant<DType, DType::kBF16> {};
template <>
struct DTypeTraits<Float16> : std::integral_constant<DType, DType::kF16> {};
template <>
struct DTypeTraits<int32_t> : std::integral_constant<DType, DType::kI32> {};
template <>
struct DTypeTraits<int64_t> : std::integral_constant<DType, DType::kI64> {};
template <>
struct DTypeTraits<uint8_t> : std::integral_constant<DType, DType::kU8> {};
template <>
struct DTypeTraits<bool> : std::integral_constant<DType, DType::kBool> {};

template <>
struct DTypeTraits<int8_t> : std::integral_constant<DType, DType::kI8> {};
template <>
struct DTypeTraits<int16_t> : std::integral_constant<DType, DType::kI16> {};
template <>
struct DTypeTraits<uint16_t> : std::integral_constant<DType, DType::kU16> {};
template <>
struct DTypeTraits<uint32_t> : std::integral_constant<DType, DType::kU32> {};
template <>
struct DTypeTraits<uint64_t> : std::integral_constant<DType, DType::kU64> {};

template <typename T>
inline constexpr DType kDTypeOf = DTypeTraits<T>::value;

// Calls f(std::type_identity<T>{}) with the type of `dtype`; coded numbers are seen as their bytes.
template <typename F>
decltype(auto) VisitDType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(std::type_identity<float>{});
    case DType::kF64:
      return f(std::type_identity<double>{});
    case DType::kBF16:
      return f(std::type_identity<BFloat16>{});
    case DType::kF16:
      return f(std::type_identity<Float16>{});
    case DType::kI32:
      return f(std::type_identity<int32_t>{});
    case DType::kI64:
      return f(std::type_identity<int64_t>{});
    case DType::kU8:
      return f(std::type_identity<uint8_t>{});
    case DType::kBool:
      return f(std::type_identity<bool>{});
    case DType::kI8:
      return f(std::type_identity<int8_t>{});
    case DType::kI16:
      return f(std::type_identity<int16_t>{});
    case DType::kU16:
      return f(std::type_identity<uint16_t>{});
    case DType::kU32:
      return f(std::type_identity<uint32_t>{});
    case DType::kU64:
      return f(std::type_identity<uint64_t>{});
    case DType::kF8E4M3Fn:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2:
    case DType::kF8E5M2Fnuz:
    case DType::kF8E8M0:
    case DType::kF4E2M1:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
      return f(std::type_identity<uint8_t>{});
  }
  std::abort();  // not a DType: memory was overwritten
}

}  // namespace braid
