// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

// The first eight are computed with. The others are held, moved, fed, fetched and cast: arithmetic
// wants one of the first eight, so cast first.
enum class DType : uint8_t {
  kF32 = 0,
  kF64,
  kBF16,
  kF16,
  kI32,
  kI64,
  kU8,
  kBool,
  kI8,
  kI16,
  kU16,
  kU32,
  kU64,
  // Coded: one number of 8 or fewer bits to a byte (runtime/coded_elements.h says how).
  kF8E4M3Fn,
  kF8E4M3Fnuz,
  kF8E5M2,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF4E2M1,
  kI4,
  kU4,
  kI2,
  kU2,
};

inline constexpr DType kLastDType = DType::kU2;

size_t SizeOf(DType dtype);                              // bytes per element
std::string_view ToString(DType dtype);                  // "f32", "bf16", ...
std::optional<DType> ParseDType(std::string_view name);  // the inverse of ToString
bool IsFloating(DType dtype);                            // of the types that are computed with
// Of which kernels widen each element to f32 before they compute with it.
constexpr bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
constexpr bool IsCoded(DType dtype) { return dtype >= DType::kF8E4M3Fn; }
// Coded floats are none; bool is none.
bool IsWholeNumber(DType dtype);

}  // namespace braid
