// 16-bit floating point as stored numbers: bfloat16 (the upper half of a float) and IEEE binary16.
// Arithmetic happens in float; these only convert, without branches, so that loops vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace braid {

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr uint16_t FloatToBFloat16Bits(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

constexpr float BFloat16BitsToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; too large becomes infinity; subnormals are kept.
constexpr uint16_t FloatToFloat16Bits(float value) {
  constexpr uint32_t kInfinity = 255u << 23;
  constexpr uint32_t kTooLarge = (127u + 16) << 23;  // 2^16: everything from here is infinity
  constexpr uint32_t kSmallestNormal = (127u - 14) << 23;
  // Adding this aligns a subnormal result's last bit with the float's: the adder does the rounding.
  constexpr uint32_t kAlign = ((127u - 15) + (23 - 10) + 1) << 23;
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t special = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAlign)) -
      kAlign;
  const uint32_t normal =
      (magnitude - ((127u - 15) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32_t out = magnitude < kSmallestNormal ? subnormal : normal;
  out = magnitude >= kTooLarge ? special : out;
  return static_cast<uint16_t>(out | ((u >> 16) & 0x8000u));
}

constexpr float Float16BitsToFloat(uint16_t bits) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  constexpr uint32_t kSubnormalBase = 113u << 23;
  const uint32_t shifted = (bits & 0x7fffu) << 13;
  const uint32_t exponent = shifted & kExponent;
  const uint32_t normal = shifted + ((127u - 15) << 23);
  const uint32_t special = normal + ((128u - 16) << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      std::bit_cast<float>(shifted + kSubnormalBase) - std::bit_cast<float>(kSubnormalBase));
  uint32_t out = exponent == 0 ? subnormal : normal;
  out = exponent == kExponent ? special : out;
  return std::bit_cast<float>(out | (static_cast<uint32_t>(bits & 0x8000u) << 16));
}

struct BFloat16 {
  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(FloatToBFloat16Bits(value)) {}
  constexpr explicit operator float() const { return BFloat16BitsToFloat(bits); }
  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 out = {};
    out.bits = bits;
    return out;
  }
  uint16_t bits;
};

struct Float16 {
  Float16() = default;
  constexpr explicit Float16(float value) : bits(FloatToFloat16Bits(value)) {}
  constexpr explicit operator float() const { return Float16BitsToFloat(bits); }
  static constexpr Float16 FromBits(uint16_t bits) {
    Float16 out = {};
    out.bits = bits;
    return out;
  }
  uint16_t bits;
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace braid
