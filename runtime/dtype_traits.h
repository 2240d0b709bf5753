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

template <typename T>
inline constexpr DType kDTypeOf = DTypeTraits<T>::value;

// Calls f(std::type_identity<T>{}) with the type of `dtype`.
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
  }
  std::abort();  // not a DType: memory was overwritten
}

}  // namespace braid
