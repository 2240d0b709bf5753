// The loops of pooling and of normalization by channels: every instruction set that this machine
// has agrees with plain loops, at all lengths and strides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/kernels/cpu/lane_loops.h"
#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/window_loops.h"

namespace braid::simd {
namespace {

constexpr int64_t kLongest = 70;

std::vector<double> Wave(int64_t n, double frequency) {
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = std::sin(frequency * static_cast<double>(i + 1));
  return values;
}

TEST(ChannelLoopsTest, WindowsReadWithAStride) {
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    const auto& loops = LoopsFor<WindowLoops<double>>(isa);
    for (int64_t stride : {1, 2, 3}) {
      std::vector<double> x = Wave(kLongest * stride, 1.7);
      x[4] = std::nan("");
      for (int64_t n = 0; n <= kLongest; ++n) {
        std::vector<double> sum = Wave(n, 0.3), max = sum, best = sum, spread(n * stride);
        std::vector<int32_t> index(n, 7);
        if (n > 2) index[2] = -1, best[2] = -std::numeric_limits<double>::infinity();
        const std::vector<double> before = best;
        loops.add_strided(x.data(), stride, sum.data(), n);
        loops.max_strided(x.data(), stride, max.data(), n);
        loops.arg_max_strided(x.data(), stride, 100, best.data(), index.data(), n);
        loops.scatter_strided(before.data(), spread.data(), stride, n);
        const std::vector<double> start = Wave(n, 0.3);
        for (int64_t i = 0; i < n; ++i) {
          const double value = x[i * stride];
          const bool is_nan = std::isnan(value);
          EXPECT_TRUE(is_nan ? std::isnan(sum[i]) : sum[i] == start[i] + value);
          EXPECT_TRUE(is_nan ? std::isnan(max[i]) : max[i] == std::max(start[i], value));
          const bool is_taken = is_nan || value > before[i] || i == 2;
          EXPECT_EQ(index[i], is_taken ? 100 + i * stride : 7) << i;
          EXPECT_TRUE(is_nan ? std::isnan(best[i]) : best[i] == (is_taken ? value : before[i]));
          EXPECT_EQ(spread[i * stride], before[i]);
        }
      }
    }
  }
}

TEST(ChannelLoopsTest, RowsAreNormalized) {
  for (Isa isa : kIsas) {
    if (isa > BestIsa()) break;
    const auto& loops = LoopsFor<NormLoops<double>>(isa);
    for (int64_t n = 0; n <= kLongest; ++n) {
      const std::vector<double> x = Wave(n, 1.3), dy = Wave(n, 0.7), mean = Wave(n, 0.2);
      const std::vector<double> a = Wave(n, 2.1), b = Wave(n, 0.9), c = Wave(n, 3.3);
      std::vector<double> y(n), y_each(n), dx(n), dx_each(n), squares(n, 1), sums(n, 2), dots(n, 3);
      loops.centered_scale(x.data(), 0.25, 1.5, -0.5, y.data(), n);
      loops.centered_scale_each(x.data(), mean.data(), a.data(), b.data(), y_each.data(), n);
      loops.centered_grad(x.data(), 0.25, dy.data(), {1.5, -0.5, 2}, dx.data(), n);
      loops.centered_grad_each(x.data(), mean.data(), dy.data(), {a.data(), b.data(), c.data()},
                               dx_each.data(), n);
      loops.add_centered_squares(x.data(), mean.data(), squares.data(), n);
      loops.add_centered_dots(x.data(), mean.data(), dy.data(), sums.data(), dots.data(), n);
      double square_sum = 0, dy_sum = 0, dot = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double d = x[i] - 0.25, each = x[i] - mean[i];
        square_sum += d * d;
        dy_sum += dy[i];
        dot += dy[i] * d;
        EXPECT_NEAR(y[i], d * 1.5 - 0.5, 1e-14);
        EXPECT_NEAR(y_each[i], each * a[i] + b[i], 1e-14);
        EXPECT_NEAR(dx[i], 1.5 * dy[i] - 0.5 * d + 2, 1e-14);
        EXPECT_NEAR(dx_each[i], a[i] * dy[i] + b[i] * each + c[i], 1e-14);
        EXPECT_NEAR(squares[i], 1 + each * each, 1e-14);
        EXPECT_NEAR(sums[i], 2 + dy[i], 1e-14);
        EXPECT_NEAR(dots[i], 3 + dy[i] * each, 1e-14);
      }
      double sum, sum_of_dots;
      loops.centered_dot(x.data(), 0.25, dy.data(), n, &sum, &sum_of_dots);
      EXPECT_NEAR(loops.centered_square_sum(x.data(), 0.25, n), square_sum, 1e-12);
      EXPECT_NEAR(sum, dy_sum, 1e-12);
      EXPECT_NEAR(sum_of_dots, dot, 1e-12);
    }
  }
}

// With another operand that is added and a rectifier at the end, with either and with neither.
TEST(ChannelLoopsTest, LanesAreNormalized) {
  for (int form = 0; form < 8 * (1 + static_cast<int>(BestIsa())); ++form) {
    const bool adds = (form & 1) != 0, rectifies = (form & 2) != 0;
    const int lanes = (form & 4) != 0 ? kFewLanes : kManyLanes;
    const LaneLoops<double>& loops = LoopsFor<BlockLoops<double>>(kIsas[form / 8]).of(lanes);
    for (int64_t pixels : {0, 1, 2, 7, 50}) {
      const int64_t n = pixels * lanes;
      const std::vector<double> x = Wave(n, 1.3), dy = Wave(n, 0.7), mean = Wave(lanes, 0.2);
      const std::vector<double> more = Wave(n, 1.7);
      const std::vector<double> a = Wave(lanes, 2.1), b = Wave(lanes, 0.9);
      const std::vector<double> c = Wave(lanes, 3.3), e = Wave(lanes, 4.1);
      std::vector<double> y(n), dx = dy, sum(lanes), squares(lanes);
      LaneSums<double> sums;
      const LaneScale<double> norm = {mean.data(), a.data(), b.data(), rectifies};
      loops.lane_sum(x.data(), pixels, sum.data());
      loops.lane_square_sum(x.data(), mean.data(), pixels, squares.data());
      loops.lane_scale(x.data(), norm, adds ? more.data() : nullptr, y.data(), pixels);
      loops.lane_dot(x.data(), norm, dy.data(), pixels, &sums);
      loops.lane_grad(x.data(), norm, dx.data(), {c.data(), e.data(), b.data()}, dx.data(), pixels);
      for (int l = 0; l < lanes; ++l) {
        double x_sum = 0, square_sum = 0, dy_sum = 0, dot = 0;
        for (int64_t i = l; i < n; i += lanes) {
          const double d = x[i] - mean[l], scaled = d * a[l] + b[l];
          const double result = scaled + (adds ? more[i] : 0);
          const double passed = rectifies && !(scaled > 0) ? 0 : dy[i];
          x_sum += x[i];
          square_sum += d * d;
          dy_sum += passed;
          dot += passed * d;
          EXPECT_NEAR(y[i], rectifies ? std::max(result, 0.0) : result, 1e-14);
          EXPECT_NEAR(dx[i], c[l] * passed + e[l] * d + b[l], 1e-14);
        }
        EXPECT_NEAR(sum[l], x_sum, 1e-12);
        EXPECT_NEAR(squares[l], square_sum, 1e-12);
        EXPECT_NEAR(sums.sum[l], dy_sum, 1e-12);
        EXPECT_NEAR(sums.dot[l], dot, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace braid::simd
