// Numbers of 8 bits and fewer as they are stored: floats with few bits, as the Open Compute Project
// (OFP8, MX) and the graphics processors of two makers have them. One stands in each byte.
// Arithmetic happens in float; these only convert.
#pragma once

#include <bit>
#include <cstdint>

namespace braid {

// Where the bits are: sign, exponent, mantissa, from the highest that is used down. All floats but
// e8m0, which is a power of two and has functions of its own.
struct FloatCode {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint8_t largest;    // the code of the largest finite number
  int infinity = -1;  // its code; none has -1
  int nan = -1;       // likewise; with the sign bit set it is one, too
  bool has_negative_zero = true;
};

inline constexpr FloatCode kE4M3Fn = {4, 3, 7, 0x7e, -1, 0x7f};
inline constexpr FloatCode kE4M3Fnuz = {4, 3, 8, 0x7f, -1, 0x80, false};
inline constexpr FloatCode kE5M2 = {5, 2, 15, 0x7b, 0x7c, 0x7e};
inline constexpr FloatCode kE5M2Fnuz = {5, 2, 16, 0x7f, -1, 0x80, false};
inline constexpr FloatCode kE2M1Fn = {2, 1, 1, 0x07};

constexpr uint8_t SignOf(const FloatCode& code) {
  return static_cast<uint8_t>(1u << (code.exponent_bits + code.mantissa_bits));
}

// 2^exponent, -1022 <= exponent <= 1023.
constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

constexpr float QuietNan() { return std::bit_cast<float>(0x7fc00000u); }

// Exact. Bits above the sign are ignored.
constexpr float DecodeFloat(const FloatCode& code, uint8_t bits) {
  const uint8_t sign = SignOf(code);
  const int magnitude = bits & (sign - 1);
  const bool is_negative = (bits & sign) != 0;
  const bool is_nan = code.has_negative_zero
                          ? magnitude > code.largest && magnitude != code.infinity
                          : bits == code.nan;
  if (is_nan) return QuietNan();
  double value = 0;
  if (magnitude == code.infinity) {
    value = std::bit_cast<float>(0x7f800000u);
  } else {
    const int exponent = magnitude >> code.mantissa_bits;
    const int mantissa = magnitude & ((1 << code.mantissa_bits) - 1);
    // Below the smallest exponent the numbers are as dense as with it.
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << code.mantissa_bits);
    value = whole * PowerOfTwo((exponent == 0 ? 1 : exponent) - code.bias - code.mantissa_bits);
  }
  return static_cast<float>(is_negative ? -value : value);
}

// The nearest, ties to even. What is too large becomes the largest number if `saturates`, else
// infinity or, without one, NaN; where there is no NaN either it always saturates. A NaN stays one,
// or becomes -0 where there is none.
constexpr uint8_t EncodeFloat(const FloatCode& code, float value, bool saturates) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 31) != 0 ? SignOf(code) : 0);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    if (code.nan < 0) return SignOf(code);
    return static_cast<uint8_t>(code.has_negative_zero ? code.nan | sign : code.nan);
  }
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int least = 1 - code.bias;
  const int used = exponent > least ? exponent : least;
  // In units of the last bit; adding and taking away 2^52 rounds to a whole number of them.
  const double scaled =
      static_cast<double>(std::bit_cast<float>(magnitude < 0x7f800000u ? magnitude : 0u)) *
      PowerOfTwo(code.mantissa_bits - used);
  const double rounded = (scaled + 4503599627370496.0) - 4503599627370496.0;
  const int result = magnitude == 0x7f800000u ? 256
                                              : static_cast<int>(rounded) +
                                                    ((used + code.bias - 1) << code.mantissa_bits);
  uint8_t out = static_cast<uint8_t>(result);
  if (result > code.largest) {
    if (saturates || (code.infinity < 0 && code.nan < 0)) {
      out = code.largest;
    } else {
      if (!code.has_negative_zero) return static_cast<uint8_t>(code.nan);
      out = static_cast<uint8_t>(code.infinity >= 0 ? code.infinity : code.nan);
    }
  }
  if (out == 0 && !code.has_negative_zero) return 0;
  return static_cast<uint8_t>(out | sign);
}

// How a number between two powers of two becomes one of them.
enum class PowerRounding : uint8_t { kUp, kDown, kNearest };

// e8m0: 2^(bits - 127); 255 is NaN.
constexpr float DecodePower(uint8_t bits) {
  if (bits == 0xff) return QuietNan();
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<uint32_t>(bits) << 23);
}

// Of numbers that are not negative; the sign is ignored. What is too small or too large becomes the
// least or the largest power if `saturates`, else NaN.
constexpr uint8_t EncodePower(float value, PowerRounding rounding, bool saturates) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0xff;
  const uint8_t largest = saturates ? 0xfe : 0xff;
  if (magnitude == 0x7f800000u) return largest;
  if (magnitude < 0x00400000u) {  // below 2^-127
    const bool becomes_least = magnitude > 0 && rounding == PowerRounding::kUp;
    return saturates || becomes_least ? 0 : 0xff;
  }
  uint32_t exponent = magnitude >> 23;
  uint32_t rest = magnitude & 0x7fffffu, half = 0x400000u;
  if (exponent == 0) rest -= 0x400000u, half = 0x200000u;  // 2^-127 is a subnormal float
  const bool rounds_up = rounding == PowerRounding::kUp
                             ? rest > 0
                             : rounding == PowerRounding::kNearest && rest >= half;
  exponent += rounds_up ? 1 : 0;
  return exponent >= 0xff ? largest : static_cast<uint8_t>(exponent);
}

}  // namespace braid
