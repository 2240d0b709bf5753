#include "runtime/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace braid {
namespace {

// The value that `bits` stand for, from the definition of the format.
double Decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return sign == 1 ? -value : value;
}

template <typename Half>
void CheckAll(int exponent_bits, int mantissa_bits) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = Decode(bits, exponent_bits, mantissa_bits);
    const float value = static_cast<float>(Half::FromBits(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(value)))) << i;
      continue;
    }
    ASSERT_EQ(value, expected) << i;
    ASSERT_EQ(std::signbit(value), i >= 0x8000) << i;
    ASSERT_EQ(Half(value).bits, bits) << i;
  }
}

TEST(Half, AllBFloat16) { CheckAll<BFloat16>(8, 7); }
TEST(Half, AllFloat16) { CheckAll<Float16>(5, 10); }

// Between every two neighbours: below the middle goes down, above goes up, the middle to even.
template <typename Half>
void CheckRounding(uint16_t infinity) {
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const float low = static_cast<float>(Half::FromBits(bits));
    const float high = bits + 1 == infinity
                           ? low + (low - static_cast<float>(Half::FromBits(bits - 1)))
                           : static_cast<float>(Half::FromBits(bits + 1));
    if (!std::isfinite(high)) continue;           // bf16's largest: its upper neighbour is no float
    const float middle = low + (high - low) / 2;  // exact: floats have more bits
    const uint16_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Half(middle).bits, even) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, HUGE_VALF)).bits, bits + 1) << bits;
    ASSERT_EQ(Half(-middle).bits, even | 0x8000) << bits;
  }
}

TEST(Half, RoundingBFloat16) {
  CheckRounding<BFloat16>(0x7f80);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Half, RoundingFloat16) {
  CheckRounding<Float16>(0x7c00);
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(1e30f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e-10f).bits, 0x8000);
}

TEST(Half, NanWithLowBitsOnlyStaysNan) {
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan))));
}

}  // namespace
}  // namespace braid
