// cached_attention and write_rows against their formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

struct Case {
  int64_t time, cache, position;
  double scale = 0.6;
  int threads = 1;
};
constexpr int64_t kBatch = 2, kHeads = 3, kDepth = 5, kValueDepth = 4;

struct Operands {
  Shape q, v, old_k, old_v;
  Values q_values, k_values, v_values, old_k_values, old_v_values;
};

// What lies in the caches from the position on is not a number: none of it may be read.
Values CacheValues(const Shape& shape, DType dtype, uint32_t seed, int64_t position) {
  Values values = RandomValues(shape, dtype, seed);
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    if (IndexOf(shape, i)[1] >= position) values[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

Operands Draw(const Case& c, DType dtype) {
  Operands o;
  o.q = {kBatch, c.time, kHeads, kDepth};
  o.v = {kBatch, c.time, kHeads, kValueDepth};
  o.old_k = {kBatch, c.cache, kHeads, kDepth};
  o.old_v = {kBatch, c.cache, kHeads, kValueDepth};
  o.q_values = RandomValues(o.q, dtype, 1, -2, 2);
  o.k_values = RandomValues(o.q, dtype, 2, -2, 2);
  o.v_values = RandomValues(o.v, dtype, 3);
  o.old_k_values = CacheValues(o.old_k, dtype, 4, c.position);
  o.old_v_values = CacheValues(o.old_v, dtype, 5, c.position);
  return o;
}

Values Expected(const Case& c, const Operands& o) {
  Values out(o.v.num_elements());
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < c.time; ++i) {
        Values weights;
        double sum = 0;
        for (int64_t j = 0; j <= c.position + i; ++j) {
          const bool is_old = j < c.position;
          double score = 0;
          for (int64_t d = 0; d < kDepth; ++d) {
            const double k = is_old ? o.old_k_values[FlatOf(o.old_k, {b, j, h, d})]
                                    : o.k_values[FlatOf(o.q, {b, j - c.position, h, d})];
            score += o.q_values[FlatOf(o.q, {b, i, h, d})] * k;
          }
          weights.push_back(std::exp(c.scale * score));
          sum += weights.back();
        }
        for (int64_t j = 0; j <= c.position + i; ++j) {
          const bool is_old = j < c.position;
          for (int64_t d = 0; d < kValueDepth; ++d) {
            const double v = is_old ? o.old_v_values[FlatOf(o.old_v, {b, j, h, d})]
                                    : o.v_values[FlatOf(o.v, {b, j - c.position, h, d})];
            out[FlatOf(o.v, {b, i, h, d})] += weights[j] / sum * v;
          }
        }
      }
    }
  }
  return out;
}

KernelCase MakeAttention(const Case& c, const Operands& o, DType dtype, DType index) {
  KernelCase kernel("cached_attention", {{"scale", c.scale}});
  kernel.spec().threads = c.threads;
  kernel.In(dtype, o.q, o.q_values).In(dtype, o.q, o.k_values).In(dtype, o.v, o.v_values);
  kernel.In(dtype, o.old_k, o.old_k_values).In(dtype, o.old_v, o.old_v_values);
  kernel.In(index, {}, {static_cast<double>(c.position)}).Out(dtype, o.v);
  return kernel;
}

TEST(CachedAttentionTest, SeesWhatCameBeforeAndItself) {
  const Case cases[] = {{1, 9, 0},    {1, 9, 8},     {4, 9, 3},         {9, 9, 0},
                        {37, 50, 13}, {1, 300, 299}, {5, 80, 75, -0.6}, {20, 33, 7, 0.6, 3}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(c.time) + " from " +
                   std::to_string(c.position));
      const Operands o = Draw(c, dtype);
      KernelCase kernel = MakeAttention(c, o, dtype, c.time % 2 == 0 ? DType::kI64 : DType::kI32);
      const absl::Status status = kernel.Run();
      ASSERT_TRUE(status.ok()) << status;
      ExpectNear(kernel.Output(), Expected(c, o), 30 * Epsilon(dtype));
      const Values first = kernel.Output();
      ASSERT_TRUE(kernel.Run().ok());
      EXPECT_EQ(kernel.Output(), first);
    }
  }
}

TEST(CachedAttentionTest, APositionOutsideTheCacheIsAnError) {
  for (const int64_t position : {-1, 7}) {
    const Case c = {3, 9, position};
    const absl::Status status =
        MakeAttention(c, Draw(c, DType::kF32), DType::kF32, DType::kI32).Run();
    EXPECT_NE(status.message().find("position " + std::to_string(position)), std::string::npos)
        << status;
    EXPECT_NE(status.message().find("[0, 7)"), std::string::npos) << status;
  }
}

TEST(WriteRowsTest, OverwritesOnlyItsRows) {
  const Shape shape = {2, 5, 3}, rows = {2, 2, 3};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32}) {
    for (const int64_t position : {0, 1, 3}) {
      const Values before = RandomValues(shape, dtype, 1, -9, 9);
      const Values written = RandomValues(rows, dtype, 2, -9, 9);
      KernelCase kernel("write_rows", {{"axis", int64_t{1}}});
      kernel.In(dtype, shape, before).In(dtype, rows, written);
      kernel.In(DType::kI32, {}, {static_cast<double>(position)});
      ASSERT_TRUE(kernel.Run().ok());
      Values expected = before;
      for (int64_t i = 0; i < rows.num_elements(); ++i) {
        std::vector<int64_t> at = IndexOf(rows, i);
        at[1] += position;
        expected[FlatOf(shape, at)] = written[i];
      }
      EXPECT_EQ(kernel.Input(0), expected);
    }
  }
}

TEST(WriteRowsTest, APositionOutsideIsAnErrorAndWritesNothing) {
  for (const double position : {-1.0, 4.0}) {
    const Values before(5, 1.0);
    KernelCase kernel("write_rows", {{"axis", int64_t{0}}});
    kernel.In(DType::kF32, {5}, before).In(DType::kF32, {2}, {2, 3});
    const absl::Status status = kernel.In(DType::kI64, {}, {position}).Run();
    EXPECT_NE(status.message().find("[0, 4)"), std::string::npos) << status;
    EXPECT_EQ(kernel.Input(0), before);
  }
}

}  // namespace
}  // namespace braid
