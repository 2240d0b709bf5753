// max_pool and its gradient against plain loops over the windows, in planes whose values are often
// equal, and sometimes -inf or NaN.
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/window_loops.h"
#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

Values FewValues(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Values values(n);
  for (double& value : values) {
    const uint32_t draw = random() % 24;
    value = static_cast<double>(draw % 4) - 1;
    if (draw == 20 || draw == 21) value = -std::numeric_limits<double>::infinity();
    if (draw == 22) value = std::nan("");
  }
  return values;
}

// Where the largest element of the window is: the first of equals; a NaN is the largest.
int64_t FirstLargest(const Values& x, const std::vector<int64_t>& window) {
  int64_t best = window[0];
  for (int64_t at : window) {
    if (!std::isnan(x[best]) && (std::isnan(x[at]) || x[at] > x[best])) best = at;
  }
  return best;
}

// Windows of `kernel` x `kernel` without padding.
std::vector<std::vector<int64_t>> Windows(const Shape& x, int64_t kernel, int64_t stride) {
  std::vector<std::vector<int64_t>> windows;
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane) {
    for (int64_t i = 0; i + kernel <= x[2]; i += stride) {
      for (int64_t j = 0; j + kernel <= x[3]; j += stride) {
        std::vector<int64_t>& window = windows.emplace_back();
        for (int64_t k = 0; k < kernel * kernel; ++k) {
          window.push_back((plane * x[2] + i + k / kernel) * x[3] + j + k % kernel);
        }
      }
    }
  }
  return windows;
}

void ExpectSame(double actual, double expected, int64_t at) {
  EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected)
      << actual << " where " << expected << " was expected, at " << at;
}

struct PoolCase {
  Shape x;
  int64_t kernel, stride;
};

TEST(PoolingTest, MaxAndItsGradient) {
  const PoolCase cases[] = {{{3, 2, 6, 10}, 2, 2},   {{1, 1, 2, 2}, 2, 2},   {{5, 3, 28, 28}, 2, 2},
                            {{2, 2, 4, 1100}, 2, 2}, {{1, 2, 90, 34}, 2, 2}, {{2, 3, 7, 9}, 2, 2},
                            {{2, 2, 6, 9}, 2, 2},    {{2, 2, 7, 8}, 2, 2},   {{2, 2, 9, 11}, 3, 2},
                            {{2, 2, 6, 6}, 2, 1}};
  for (const PoolCase& c : cases) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const auto windows = Windows(c.x, c.kernel, c.stride);
      const Shape y = {c.x[0], c.x[1], (c.x[2] - c.kernel) / c.stride + 1,
                       (c.x[3] - c.kernel) / c.stride + 1};
      const Values x = FewValues(c.x.num_elements(), 7);
      const Values dy = RandomValues(y, dtype, 8);
      using Ints = std::vector<int64_t>;
      const Attrs attrs = {{"kernel", Ints{c.kernel, c.kernel}},
                           {"strides", Ints{c.stride, c.stride}},
                           {"dilations", Ints{1, 1}},
                           {"pads_begin", Ints{0, 0}},
                           {"pads_end", Ints{0, 0}}};
      KernelCase pool("max_pool", attrs), grad("max_pool_grad", attrs);
      ASSERT_TRUE(pool.In(dtype, c.x, x).Out(dtype, y).Run().ok());
      ASSERT_TRUE(grad.In(dtype, c.x, x).In(dtype, y, dy).Out(dtype, c.x).Run().ok());
      const Values largest_values = pool.Output(), gradient = grad.Output();
      Values dx(x.size());
      for (size_t w = 0; w < windows.size(); ++w) {
        const int64_t largest = FirstLargest(x, windows[w]);
        dx[largest] += dy[w];
        ExpectSame(largest_values[w], x[largest], static_cast<int64_t>(w));
      }
      for (size_t i = 0; i < dx.size(); ++i) {
        EXPECT_NEAR(gradient[i], dx[i], 8 * Epsilon(dtype)) << i;
      }
    }
  }
}

// Every instruction set that this machine has.
TEST(PoolingTest, LoopsOfTwoByTwo) {
  for (simd::Isa isa : simd::kIsas) {
    if (isa > simd::BestIsa()) break;
    const auto& loops = simd::LoopsFor<simd::WindowLoops<double>>(isa);
    for (int64_t rows : {0, 1, 3}) {
      for (int64_t width = 2; width <= 72; width += 2) {
        const Shape shape = {1, 1, 2 * rows, width};
        const Values x = FewValues(shape.num_elements(), 9);
        const auto windows = Windows(shape, 2, 2);
        Values dy(windows.size()), y(windows.size()), scratch(2 * rows * width);
        for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<double>(i + 1);
        Values dx(x.size(), 5), expected(x.size());
        loops.max_2x2(x.data(), rows, width, scratch.data(), y.data());
        loops.max_2x2_grad(x.data(), dy.data(), rows, width, scratch.data(), dx.data());
        for (size_t w = 0; w < windows.size(); ++w) {
          const int64_t largest = FirstLargest(x, windows[w]);
          expected[largest] = dy[w];
          ExpectSame(y[w], x[largest], static_cast<int64_t>(w));
        }
        EXPECT_EQ(dx, expected) << rows << " rows of " << width;
      }
    }
  }
}

}  // namespace
}  // namespace braid
