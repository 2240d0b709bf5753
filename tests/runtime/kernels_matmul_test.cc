// Matrix products against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/kernels/kernel.h"
#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;

Values Matmul(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  Values c(m * n, 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        c[i * n + j] += a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
      }
    }
  }
  return c;
}

// One rounding of the result, and k roundings of the f32 or f64 sum (terms are below 1).
void ExpectProduct(const Values& actual, const Values& expected, DType dtype, int64_t k) {
  const double sum_epsilon = std::min(Epsilon(dtype), Epsilon(DType::kF32));
  ExpectNear(actual, expected, 1.1 * Epsilon(dtype),
             static_cast<double>(k + 1) * sum_epsilon / Epsilon(dtype));
}

TEST(MatmulTest, EveryTransposeAndSize) {
  // Sizes on both sides of every choice of library.
  const Ints sizes[] = {{1, 1, 1},    {3, 5, 7},      {5, 1, 9}, {1, 6, 8}, {100, 10, 64},
                        {97, 83, 71}, {300, 12, 600}, {4, 0, 3}, {4, 3, 0}, {12, 700, 300}};
  for (DType dtype : kFloatTypes) {
    for (const Ints& size : sizes) {
      const int64_t m = size[0], n = size[1], k = size[2];
      for (int mask = 0; mask < 4; ++mask) {
        const bool ta = mask & 1, tb = mask & 2;
        SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(m) + " " +
                     std::to_string(n) + " " + std::to_string(k) + " " + std::to_string(mask));
        const Shape a_shape = ta ? Shape{k, m} : Shape{m, k};
        const Shape b_shape = tb ? Shape{n, k} : Shape{k, n};
        const Values a = RandomValues(a_shape, dtype, 1), b = RandomValues(b_shape, dtype, 2);
        KernelCase kernel("matmul", {{"transpose_a", ta}, {"transpose_b", tb}});
        kernel.In(dtype, a_shape, a).In(dtype, b_shape, b).Out(dtype, {m, n});
        ASSERT_TRUE(kernel.Run().ok());
        ExpectProduct(kernel.Output(), Matmul(a, b, m, n, k, ta, tb), dtype, k);
      }
    }
  }
}

// What --precision=bf16 asks for: narrow operands, the f32 sum as it is.
TEST(MatmulTest, NarrowOperandsWithAWideResult) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Ints& size : {Ints{5, 7, 33}, Ints{97, 83, 71}, Ints{3, 4, 0}}) {
      const int64_t m = size[0], n = size[1], k = size[2];
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(m));
      const Values a = RandomValues({2, m, k}, dtype, 1), b = RandomValues({2, n, k}, dtype, 2);
      KernelCase kernel("matmul", {{"transpose_b", true}, {"dtype", DType::kF32}});
      kernel.In(dtype, {2, m, k}, a).In(dtype, {2, n, k}, b).Out(DType::kF32, {2, m, n});
      ASSERT_TRUE(kernel.Run().ok());
      Values expected;
      for (int64_t i = 0; i < 2; ++i) {
        const Values c = Matmul(Values(a.begin() + i * m * k, a.begin() + (i + 1) * m * k),
                                Values(b.begin() + i * n * k, b.begin() + (i + 1) * n * k), m, n, k,
                                false, true);
        expected.insert(expected.end(), c.begin(), c.end());
      }
      ExpectProduct(kernel.Output(), expected, DType::kF32, k);
    }
  }
}

TEST(MatmulTest, Batches) {
  struct Case {
    Shape a, b, c;
    bool ta, tb;
  };
  const Case cases[] = {
      {{2, 3, 5, 7}, {7, 4}, {2, 3, 5, 4}, false, false},
      {{2, 3, 5, 7}, {4, 7}, {2, 3, 5, 4}, false, true},
      {{2, 3, 7, 5}, {7, 4}, {2, 3, 5, 4}, true, false},
      {{2, 3, 5, 7}, {2, 3, 7, 4}, {2, 3, 5, 4}, false, false},
      {{2, 3, 5, 7}, {2, 3, 4, 7}, {2, 3, 5, 4}, false, true},
      {{2, 3, 5, 7}, {3, 7, 4}, {2, 3, 5, 4}, false, false},
      {{2, 1, 5, 7}, {1, 3, 7, 4}, {2, 3, 5, 4}, false, false},
      {{5, 7}, {3, 7, 4}, {3, 5, 4}, false, false},
      {{0, 5, 7}, {0, 7, 4}, {0, 5, 4}, false, false},
      {{2, 3, 90, 64}, {2, 3, 90, 64}, {2, 3, 90, 90}, false, true},
  };
  for (DType dtype : kFloatTypes) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + c.a.ToString() + " " + c.b.ToString());
      const Values a = RandomValues(c.a, dtype, 1), b = RandomValues(c.b, dtype, 2);
      KernelCase kernel("matmul", {{"transpose_a", c.ta}, {"transpose_b", c.tb}});
      kernel.In(dtype, c.a, a).In(dtype, c.b, b).Out(dtype, c.c);
      ASSERT_TRUE(kernel.Run().ok());
      Values expected(c.c.num_elements());
      const int64_t k = c.a[c.a.rank() - (c.ta ? 2 : 1)];
      const auto element = [](const Values& values, const Shape& shape, const Ints& leading,
                              int64_t row, int64_t column) {
        Ints index(shape.rank());
        const int skip = static_cast<int>(leading.size()) - (shape.rank() - 2);
        for (int i = 0; i < shape.rank() - 2; ++i) index[i] = shape[i] == 1 ? 0 : leading[i + skip];
        index[shape.rank() - 2] = row;
        index[shape.rank() - 1] = column;
        return values[FlatOf(shape, index)];
      };
      for (size_t i = 0; i < expected.size(); ++i) {
        const Ints at = IndexOf(c.c, static_cast<int64_t>(i));
        const Ints leading(at.begin(), at.end() - 2);
        const int64_t row = at[at.size() - 2], column = at[at.size() - 1];
        for (int64_t l = 0; l < k; ++l) {
          expected[i] += element(a, c.a, leading, c.ta ? l : row, c.ta ? row : l) *
                         element(b, c.b, leading, c.tb ? column : l, c.tb ? l : column);
        }
      }
      ExpectProduct(kernel.Output(), expected, dtype, k);
    }
  }
}

TEST(MatmulTest, Tensordot) {
  for (DType dtype : kFloatTypes) {
    for (int64_t rows : {0, 3, 40}) {
      const Shape a_shape = {2, rows, 33}, b_shape = {2, rows, 17};
      const Values a = RandomValues(a_shape, dtype, 1), b = RandomValues(b_shape, dtype, 2);
      KernelCase kernel("tensordot");
      kernel.In(dtype, a_shape, a).In(dtype, b_shape, b).Out(dtype, {33, 17});
      ASSERT_TRUE(kernel.Run().ok());
      ExpectProduct(kernel.Output(), Matmul(a, b, 33, 17, 2 * rows, true, false), dtype, 2 * rows);
    }
  }
}

}  // namespace
}  // namespace braid
