// What the calls of a process group move and compute on.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "comm/collective/collective.h"
#include "graph/dtype.h"
#include "runtime/base/half.h"

namespace braid::dist {

enum class ElementType : uint8_t {
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,   // two f32
  kC128,  // two f64
  kBool,
  kBytes,  // of any size: moved, never computed on
};

// How values of several ranks become one. f16 and bf16 are added and multiplied in f32 and rounded
// after each step.
enum class ReduceOp : uint8_t { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };

std::string_view NameOf(ElementType type);  // "f32"
std::string_view NameOf(ReduceOp op);       // "sum"
// 0 for kBytes.
int64_t SizeOf(ElementType type);
ElementType ElementTypeOf(DType type);

// kBytes: T is trivially copyable and of no type that is computed on.
template <typename T>
constexpr ElementType ElementTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return ElementType::kBool;
  if constexpr (std::is_same_v<T, float>) return ElementType::kF32;
  if constexpr (std::is_same_v<T, double>) return ElementType::kF64;
  if constexpr (std::is_same_v<T, Float16>) return ElementType::kF16;
  if constexpr (std::is_same_v<T, BFloat16>) return ElementType::kBF16;
  if constexpr (std::is_same_v<T, std::complex<float>>) return ElementType::kC64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return ElementType::kC128;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr bool kSigned = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return kSigned ? ElementType::kI8 : ElementType::kU8;
    if constexpr (sizeof(T) == 2) return kSigned ? ElementType::kI16 : ElementType::kU16;
    if constexpr (sizeof(T) == 4) return kSigned ? ElementType::kI32 : ElementType::kU32;
    if constexpr (sizeof(T) == 8) return kSigned ? ElementType::kI64 : ElementType::kU64;
  }
  return ElementType::kBytes;
}

// Null if the operation is not defined: anything on kBytes; kMin and kMax on complex numbers; kAnd,
// kOr and kXor on floating-point and complex numbers; kAverage on integers and bool, where the
// quotient may not be one. On bool a sum is "or" and a product "and". An average adds: it is
// divided at the end (FindDivision).
ReduceFn FindReduction(ElementType type, ReduceOp op);

// A program's own operation, on elements of one type.
struct ReduceFunction {
  std::string name;  // the same on all ranks, and with it what it does
  ElementType type = ElementType::kBytes;
  int64_t element_size = 0;
  // dst = a op b, for n elements; dst may be a or b. May throw.
  std::function<void(void* dst, const void* a, const void* b, int64_t n)> combine;
};

// data[i] /= by, for n elements.
using DivideFn = void (*)(void* data, int64_t by, int64_t n);
// Null where kAverage is not defined.
DivideFn FindDivision(ElementType type);

}  // namespace braid::dist
