// Products in bf16 by tiles, beside sums in f64 of the same numbers.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/half.h"
#include "runtime/kernels/cpu/gemm.h"

namespace braid::cpu {
namespace {

std::vector<uint16_t> RandomBFloat16(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<uint16_t> values(n);
  for (uint16_t& value : values) value = FloatToBFloat16Bits(uniform(random));
  return values;
}

struct Sizes {
  int64_t m, n, k;
};

class TileGemmTest : public testing::TestWithParam<Sizes> {};

TEST_P(TileGemmTest, EqualsSumsInF64) {
  if (!HasTiles()) GTEST_SKIP() << "no AMX on this machine";
  const auto [m, n, k] = GetParam();
  const std::vector<uint16_t> a = RandomBFloat16(m * k, 1), b = RandomBFloat16(k * n, 2);
  for (int variant = 0; variant < 16; ++variant) {
    const GemmShape shape = {.dtype = DType::kBF16,
                             .wide_result = (variant & 1) != 0,
                             .m = m,
                             .n = n,
                             .k = k,
                             .transpose_a = (variant & 2) != 0,
                             .transpose_b = (variant & 4) != 0,
                             .threads = (variant & 8) != 0 ? 2 : 1};
    const auto gemm = ChooseTileGemm(shape);
    ASSERT_NE(gemm, nullptr);
    gemm->Allocate();
    std::vector<uint16_t> narrow(shape.wide_result ? 0 : m * n, 0x7fc0);
    std::vector<float> wide(shape.wide_result ? m * n : 0, NAN);
    void* const c = shape.wide_result ? static_cast<void*>(wide.data()) : narrow.data();
    gemm->Run(a.data(), b.data(), c);
    for (int64_t i = 0; i < m; i += 1 + i % 7) {
      for (int64_t j = 0; j < n; j += 1 + j % 5) {
        double sum = 0;
        for (int64_t t = 0; t < k; ++t) {
          sum += double{BFloat16BitsToFloat(a[shape.transpose_a ? t * m + i : i * k + t])} *
                 BFloat16BitsToFloat(b[shape.transpose_b ? j * k + t : t * n + j]);
        }
        const double got =
            shape.wide_result ? wide[i * n + j] : BFloat16BitsToFloat(narrow[i * n + j]);
        // Rounded to f32 at most k times, and to bf16 at the end.
        const double rounding = shape.wide_result ? 0 : 0x1p-8 * std::abs(sum);
        ASSERT_NEAR(got, sum, rounding + 1e-6 * static_cast<double>(k))
            << "variant " << variant << " at " << i << ", " << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TileGemmTest,
                         testing::Values(Sizes{32, 32, 32}, Sizes{33, 47, 65}, Sizes{64, 80, 96},
                                         // More than one part of rows, of columns and of terms.
                                         Sizes{300, 40, 70}, Sizes{40, 530, 50},
                                         Sizes{50, 60, 1100}),
                         [](const auto& info) {
                           return std::to_string(info.param.m) + "x" +
                                  std::to_string(info.param.n) + "x" + std::to_string(info.param.k);
                         });

TEST(ChooseTileGemmTest, LeavesToOthersWhatFillsNoTile) {
  EXPECT_EQ(ChooseTileGemm({.dtype = DType::kBF16, .m = 31, .n = 64, .k = 64}), nullptr);
  EXPECT_EQ(ChooseTileGemm({.dtype = DType::kF32, .m = 64, .n = 64, .k = 64}), nullptr);
}

}  // namespace
}  // namespace braid::cpu
