// What a byte of a coded element type means. runtime/base/coded.h has the floats' codes; whole
// numbers of 4 and 2 bits stand in a byte as they would in 8 bits.
#pragma once

#include <cstdint>

#include "graph/dtype.h"
#include "runtime/base/coded.h"

namespace braid {

// How floats become codes.
struct Encoding {
  bool saturates = true;                        // of floats
  PowerRounding rounding = PowerRounding::kUp;  // of f8e8m0
};

// IsCoded(dtype) only; exact.
constexpr float DecodeElement(DType dtype, uint8_t code) {
  switch (dtype) {
    case DType::kF8E4M3Fn:
      return DecodeFloat(kE4M3Fn, code);
    case DType::kF8E4M3Fnuz:
      return DecodeFloat(kE4M3Fnuz, code);
    case DType::kF8E5M2:
      return DecodeFloat(kE5M2, code);
    case DType::kF8E5M2Fnuz:
      return DecodeFloat(kE5M2Fnuz, code);
    case DType::kF8E8M0:
      return DecodePower(code);
    case DType::kF4E2M1:
      return DecodeFloat(kE2M1Fn, code);
    case DType::kI4:
    case DType::kI2:
      return static_cast<int8_t>(code);
    default:
      return code;
  }
}

// The code of a whole number in a type of these: its lowest bits.
constexpr uint8_t EncodeWhole(DType dtype, int64_t value) {
  const auto low = static_cast<uint32_t>(static_cast<uint64_t>(value));
  switch (dtype) {
    case DType::kI4:
      return static_cast<uint8_t>((low & 7u) - (low & 8u));
    case DType::kU4:
      return static_cast<uint8_t>(low & 15u);
    case DType::kI2:
      return static_cast<uint8_t>((low & 1u) - (low & 2u));
    default:
      return static_cast<uint8_t>(low & 3u);
  }
}

// The nearest float, or the whole number towards zero.
constexpr uint8_t EncodeElement(DType dtype, float value, const Encoding& encoding = {}) {
  switch (dtype) {
    case DType::kF8E4M3Fn:
      return EncodeFloat(kE4M3Fn, value, encoding.saturates);
    case DType::kF8E4M3Fnuz:
      return EncodeFloat(kE4M3Fnuz, value, encoding.saturates);
    case DType::kF8E5M2:
      return EncodeFloat(kE5M2, value, encoding.saturates);
    case DType::kF8E5M2Fnuz:
      return EncodeFloat(kE5M2Fnuz, value, encoding.saturates);
    case DType::kF8E8M0:
      return EncodePower(value, encoding.rounding, encoding.saturates);
    case DType::kF4E2M1:
      return EncodeFloat(kE2M1Fn, value, encoding.saturates);
    default:
      break;
  }
  constexpr float kLimit = 9.0e18f;
  const bool is_within = value > -kLimit && value < kLimit;  // a NaN is not
  return EncodeWhole(dtype, is_within ? static_cast<int64_t>(value) : 0);
}

}  // namespace braid
