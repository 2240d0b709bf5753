// The layers over images.
#include <algorithm>
#include <cmath>

#include "tests/reference/layers.h"

namespace braid::reference {
namespace {

int64_t Windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}

}  // namespace

Images ConvLayer::to() const {
  return {from.count, out, Windows(from.height, kernel, stride, padding),
          Windows(from.width, kernel, stride, padding)};
}

template <typename Visit>
void ConvLayer::ForEachProduct(Visit visit) const {
  const Images y = to();
  const int64_t in_per_group = from.channels / groups, out_per_group = out / groups;
  for (int64_t n = 0; n < y.count; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t h = 0; h < y.height; ++h) {
        for (int64_t w = 0; w < y.width; ++w) {
          for (int64_t c = 0; c < in_per_group; ++c) {
            for (int64_t i = 0; i < kernel; ++i) {
              for (int64_t j = 0; j < kernel; ++j) {
                const int64_t row = h * stride + i - padding, column = w * stride + j - padding;
                if (row < 0 || row >= from.height || column < 0 || column >= from.width) continue;
                visit(y.At(n, o, h, w),
                      from.At(n, o / out_per_group * in_per_group + c, row, column),
                      ((o * in_per_group + c) * kernel + i) * kernel + j);
              }
            }
          }
        }
      }
    }
  }
}

Numbers ConvLayer::Forward(const Numbers& input) {
  x = input;
  const Images images = to();
  Numbers y(images.size());
  ForEachProduct([&](int64_t to, int64_t from, int64_t w) { y[to] += x[from] * weight->value[w]; });
  if (bias == nullptr) return y;
  for (int64_t i = 0; i < images.size(); ++i) {
    y[i] += bias->value[i / (images.height * images.width) % out];
  }
  return y;
}

Numbers ConvLayer::Backward(const Numbers& dy) {
  const Images images = to();
  Numbers dx(x.size());
  ForEachProduct([&](int64_t to, int64_t from, int64_t w) {
    dx[from] += dy[to] * weight->value[w];
    weight->gradient[w] += dy[to] * x[from];
  });
  if (bias == nullptr) return dx;
  for (int64_t i = 0; i < images.size(); ++i) {
    bias->gradient[i / (images.height * images.width) % out] += dy[i];
  }
  return dx;
}

Numbers BatchNormLayer::Forward(const Numbers& input) {
  const int64_t area = images.height * images.width;
  const auto count = static_cast<double>(images.count * area);
  normalized.assign(input.size(), 0);
  inverse_deviation.assign(images.channels, 0);
  Numbers y(input.size());
  for (int64_t c = 0; c < images.channels; ++c) {
    const auto for_each = [&](auto visit) {
      for (int64_t n = 0; n < images.count; ++n) {
        for (int64_t i = 0; i < area; ++i) visit(images.At(n, c, 0, 0) + i);
      }
    };
    double mean = 0, variance = 0;
    for_each([&](int64_t at) { mean += input[at] / count; });
    for_each([&](int64_t at) { variance += (input[at] - mean) * (input[at] - mean) / count; });
    inverse_deviation[c] = 1 / std::sqrt(variance + epsilon);
    for_each([&](int64_t at) {
      normalized[at] = (input[at] - mean) * inverse_deviation[c];
      y[at] = normalized[at] * gamma->value[c] + beta->value[c];
    });
    const auto move = [this](double& running, double newest) {
      running = (1 - momentum) * running + momentum * newest;
    };
    move(running_mean->value[c], mean);
    move(running_variance->value[c], variance * count / (count - 1));
  }
  return y;
}

Numbers BatchNormLayer::Backward(const Numbers& dy) {
  const int64_t area = images.height * images.width;
  const auto count = static_cast<double>(images.count * area);
  Numbers dx(dy.size());
  for (int64_t c = 0; c < images.channels; ++c) {
    double sum = 0, sum_along = 0;
    for (int64_t n = 0; n < images.count; ++n) {
      for (int64_t i = 0; i < area; ++i) {
        const int64_t at = images.At(n, c, 0, 0) + i;
        sum += dy[at];
        sum_along += dy[at] * normalized[at];
      }
    }
    gamma->gradient[c] += sum_along;
    beta->gradient[c] += sum;
    const double factor = gamma->value[c] * inverse_deviation[c];
    for (int64_t n = 0; n < images.count; ++n) {
      for (int64_t i = 0; i < area; ++i) {
        const int64_t at = images.At(n, c, 0, 0) + i;
        dx[at] = factor * (dy[at] - sum / count - normalized[at] * sum_along / count);
      }
    }
  }
  return dx;
}

Images MaxPoolLayer::to() const {
  return {from.count, from.channels, Windows(from.height, kernel, stride, padding),
          Windows(from.width, kernel, stride, padding)};
}

Numbers MaxPoolLayer::Forward(const Numbers& input) {
  const Images images = to();
  double scale = 0;
  for (double a : input) scale = std::max(scale, std::abs(a));
  Numbers y(images.size());
  chosen.assign(images.size(), 0);
  for (int64_t n = 0; n < images.count; ++n) {
    for (int64_t c = 0; c < images.channels; ++c) {
      for (int64_t h = 0; h < images.height; ++h) {
        for (int64_t w = 0; w < images.width; ++w) {
          double largest = -1e300, second = -1e300;
          const int64_t to = images.At(n, c, h, w);
          for (int64_t i = 0; i < kernel; ++i) {
            for (int64_t j = 0; j < kernel; ++j) {
              const int64_t row = h * stride + i - padding, column = w * stride + j - padding;
              if (row < 0 || row >= from.height || column < 0 || column >= from.width) continue;
              const int64_t at = from.At(n, c, row, column);
              if (input[at] > largest) {
                second = largest;
                largest = input[at];
                chosen[to] = at;
              } else {
                second = std::max(second, input[at]);
              }
            }
          }
          // Of zeros that a ReLU left it does not matter which one gets the gradient.
          if (margin != nullptr && largest > 0) margin->Note(largest - second, scale);
          y[to] = largest;
        }
      }
    }
  }
  return y;
}

Numbers MaxPoolLayer::Backward(const Numbers& dy) const {
  Numbers dx(from.size());
  for (size_t i = 0; i < dy.size(); ++i) dx[chosen[i]] += dy[i];
  return dx;
}

Numbers GlobalMeanLayer::Forward(const Numbers& input) const {
  const int64_t area = from.height * from.width;
  Numbers y(from.count * from.channels);
  for (int64_t i = 0; i < from.size(); ++i) y[i / area] += input[i] / static_cast<double>(area);
  return y;
}

Numbers GlobalMeanLayer::Backward(const Numbers& dy) const {
  const int64_t area = from.height * from.width;
  Numbers dx(from.size());
  for (int64_t i = 0; i < from.size(); ++i) dx[i] = dy[i / area] / static_cast<double>(area);
  return dx;
}

}  // namespace braid::reference
