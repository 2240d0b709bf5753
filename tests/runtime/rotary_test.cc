// rotary and rms_norm against their formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

constexpr DType kFloatTypes[] = {DType::kF32, DType::kF64, DType::kBF16};

Attrs RotaryAttrs(int64_t axis, bool interleaved, bool inverse = false) {
  return {{"axis", axis},
          {"base", 50.0},
          {"offset", int64_t{7}},
          {"interleaved", interleaved},
          {"inverse", inverse}};
}

// x [batch, 3, time, depth], or [batch, time, 3, depth] if axis is 1.
Values Rotated(const Values& x, const Shape& shape, int axis, bool interleaved,
               const Values& positions) {
  Values y(x.size());
  const int64_t depth = shape[3], pairs = depth / 2;
  for (int64_t flat = 0; flat < shape.num_elements(); flat += depth) {
    const std::vector<int64_t> at = IndexOf(shape, flat);
    const int64_t time = shape[axis];
    const bool by_batch = static_cast<int64_t>(positions.size()) > time;
    const double position = positions[(by_batch ? at[0] * time : 0) + at[axis]];
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = position * std::pow(50.0, -2.0 * static_cast<double>(i) / depth);
      const int64_t a = flat + (interleaved ? 2 * i : i);
      const int64_t b = interleaved ? a + 1 : a + pairs;
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
  }
  return y;
}

void ExpectNear(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST(RotaryTest, TurnsPairs) {
  for (DType dtype : kFloatTypes) {
    for (const int axis : {1, 2}) {
      for (const bool interleaved : {false, true}) {
        SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(axis));
        const Shape shape = axis == 1 ? Shape{2, 5, 3, 22} : Shape{2, 3, 5, 22};
        const Values x = RandomValues(shape, dtype, 1);
        const double tolerance = 4 * Epsilon(dtype);
        KernelCase counted("rotary", RotaryAttrs(axis, interleaved));
        counted.In(dtype, shape, x).Out(dtype, shape);
        ASSERT_TRUE(counted.Run().ok());
        ExpectNear(counted.Output(), Rotated(x, shape, axis, interleaved, {7, 8, 9, 10, 11}),
                   tolerance);
        // And back.
        KernelCase back("rotary", RotaryAttrs(axis, interleaved, /*inverse=*/true));
        back.In(dtype, shape, counted.Output()).Out(dtype, shape);
        ASSERT_TRUE(back.Run().ok());
        ExpectNear(back.Output(), x, 2 * tolerance);

        const Values one = {4, 0, -3, 1000, 2}, two = {1, 2, 3, 4, 5, 60, 7, 80, 9, 0};
        KernelCase of_time("rotary", RotaryAttrs(axis, interleaved));
        of_time.In(dtype, shape, x).In(DType::kI32, {5}, one).Out(dtype, shape);
        ASSERT_TRUE(of_time.Run().ok());
        ExpectNear(of_time.Output(), Rotated(x, shape, axis, interleaved, one), tolerance);
        KernelCase of_batch("rotary", RotaryAttrs(axis, interleaved));
        of_batch.In(dtype, shape, x).In(DType::kI64, {2, 5}, two).Out(dtype, shape);
        ASSERT_TRUE(of_batch.Run().ok());
        ExpectNear(of_batch.Output(), Rotated(x, shape, axis, interleaved, two), tolerance);
      }
    }
  }
}

// The product of a turned query and key depends on how far apart they are.
TEST(RotaryTest, ProductsDependOnDistance) {
  const Shape shape = {1, 1, 2, 8};
  const Values vector = RandomValues({8}, DType::kF64, 1);
  Values both = vector;
  both.insert(both.end(), vector.begin(), vector.end());
  const auto product = [&](double position) {
    KernelCase kernel("rotary", RotaryAttrs(2, false));
    kernel.In(DType::kF64, shape, both).In(DType::kI32, {2}, {position, position + 3});
    kernel.Out(DType::kF64, shape);
    EXPECT_TRUE(kernel.Run().ok());
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += kernel.Output()[i] * kernel.Output()[8 + i];
    return sum;
  };
  EXPECT_NEAR(product(0), product(40), 1e-12);
}

TEST(RmsNormTest, ForwardAndBackward) {
  for (DType dtype : kFloatTypes) {
    for (const int64_t c : {1, 5, 32, 77}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::to_string(c));
      const Shape shape = {2, 70, c}, rows = {2, 70};
      const Values x = RandomValues(shape, dtype, 1, -2, 3), gamma = RandomValues({c}, dtype, 2);
      const Values dy = RandomValues(shape, dtype, 3);
      Values y(x.size()), rstd(140), dx(x.size()), dgamma(c);
      for (int64_t row = 0; row < 140; ++row) {
        const double *xr = &x[row * c], *dyr = &dy[row * c];
        double mean = 0, mean_gh = 0;
        for (int64_t j = 0; j < c; ++j) mean += xr[j] * xr[j] / c;
        const double r = Rounded(dtype, 1 / std::sqrt(mean + 1e-2));
        rstd[row] = r;  // the gradient sees the stored one
        for (int64_t j = 0; j < c; ++j) {
          y[row * c + j] = xr[j] * gamma[j] / std::sqrt(mean + 1e-2);
          mean_gh += dyr[j] * gamma[j] * xr[j] * r / c;
          dgamma[j] += dyr[j] * xr[j] * r;
        }
        for (int64_t j = 0; j < c; ++j) {
          dx[row * c + j] = r * (dyr[j] * gamma[j] - xr[j] * r * mean_gh);
        }
      }
      KernelCase forward("rms_norm", {{"epsilon", 1e-2}});
      forward.In(dtype, shape, x).In(dtype, {c}, gamma).Out(dtype, shape).Out(dtype, rows);
      ASSERT_TRUE(forward.Run().ok());
      ExpectNear(forward.Output(0), y, 16 * Epsilon(dtype));
      ExpectNear(forward.Output(1), rstd, 64 * Epsilon(dtype));
      KernelCase backward("rms_norm_grad");
      backward.In(dtype, shape, x).In(dtype, {c}, gamma).In(dtype, rows, rstd);
      backward.In(dtype, shape, dy).Out(dtype, shape).Out(dtype, {c});
      ASSERT_TRUE(backward.Run().ok());
      // 1 / rms may be 10.
      ExpectNear(backward.Output(0), dx, 160 * Epsilon(dtype));
      ExpectNear(backward.Output(1), dgamma, 300 * Epsilon(dtype));
    }
  }
}

}  // namespace
}  // namespace braid
