#include "runtime/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace braid {
namespace {

TEST(Philox, KnownAnswers) {  // kat_vectors of Random123, the authors' own library
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StableHashIsFnv1a) {
  EXPECT_EQ(StableHash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(StableHash("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(StableHash("foobar"), 0x85944171f73967e8u);
}

TEST(Philox, SeedNameStepAndIndexAllMatter) {
  std::set<uint32_t> seen;
  for (uint64_t seed : {0, 1, 2}) {
    for (const char* name : {"fc1.weight", "fc2.weight"}) {
      for (int64_t step : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
        for (uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
          seen.insert(Uint32At(MakeRandomKey(seed, name, step), index));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 3u * 2 * 3 * 3);
}

// Any cut of a range gives the same numbers, also across index 2^34, where the counter's second
// word begins to count.
TEST(Philox, FillsEqualSingleElements) {
  const RandomKey key = MakeRandomKey(7, "x", 3);
  for (const uint64_t base : {uint64_t{0}, (uint64_t{1} << 34) - 270}) {
    for (const uint64_t offset : {0, 1, 2, 3, 5}) {
      for (const size_t n :
           {size_t{0}, size_t{1}, size_t{3}, size_t{64}, size_t{67}, size_t{300}, size_t{1100}}) {
        const uint64_t first = base + offset;
        std::vector<uint32_t> words(n + 1, 0xabababab);
        FillUint32(key, first, n, words.data());
        for (size_t j = 0; j < n; ++j) ASSERT_EQ(words[j], Uint32At(key, first + j));
        EXPECT_EQ(words[n], 0xabababab);
      }
    }
  }
  std::vector<float> uniform(2500), normal(2500);
  FillUniform(key, 3, uniform.size(), uniform.data());
  FillNormal(key, 3, normal.size(), normal.data());
  for (size_t j = 0; j < uniform.size(); ++j) {
    ASSERT_EQ(uniform[j], UniformAt(key, 3 + j));
    ASSERT_EQ(normal[j], static_cast<float>(NormalAt(key, 3 + j)));
  }
}

TEST(Philox, UniformRange) {
  EXPECT_EQ(UniformFromWord(0), 0.0f);
  EXPECT_LT(UniformFromWord(0xffffffff), 1.0f);
  const RandomKey key = MakeRandomKey(1, "u", 0);
  double sum = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double u = UniformDoubleAt(key, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
}

TEST(Philox, NormalMoments) {
  const size_t n = 200000;
  std::vector<float> x(n);
  FillNormal(MakeRandomKey(42, "w", 0), 0, n, x.data());
  double mean = 0, square = 0, fourth = 0, product = 0;
  for (size_t i = 0; i < n; ++i) {
    mean += x[i];
    square += x[i] * x[i];
    fourth += std::pow(x[i], 4);
    product += x[i] * x[i ^ 1];  // the two of a pair must not go together
  }
  EXPECT_NEAR(mean / n, 0.0, 0.01);
  EXPECT_NEAR(square / n, 1.0, 0.015);
  EXPECT_NEAR(fourth / n, 3.0, 0.1);
  EXPECT_NEAR(product / n, 0.0, 0.015);
  // The extreme words give finite numbers.
  EXPECT_TRUE(std::isfinite(NormalsFromWords(0, 0).even));
  EXPECT_TRUE(std::isfinite(NormalsFromWords(0xffffffff, 0xffffffff).odd));
}

}  // namespace
}  // namespace braid
