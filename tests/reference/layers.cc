#include "tests/reference/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace braid::reference {

void Margin::Note(double distance, double scale) {
  if (scale > 0) smallest = std::min(smallest, distance / scale);
}

Numbers Sum(const Numbers& a, const Numbers& b) {
  Numbers sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

Numbers LinearLayer::Forward(const Numbers& input) {
  x = input;
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  Numbers y(rows * out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias == nullptr ? 0 : bias->value[o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * weight->value[i * out + o];
      y[r * out + o] = sum;
    }
  }
  return y;
}

Numbers LinearLayer::Backward(const Numbers& dy) {
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  Numbers dx(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const double d = dy[r * out + o];
      if (bias != nullptr) bias->gradient[o] += d;
      for (int64_t i = 0; i < in; ++i) {
        weight->gradient[i * out + o] += x[r * in + i] * d;
        dx[r * in + i] += weight->value[i * out + o] * d;
      }
    }
  }
  return dx;
}

Numbers ReluLayer::Forward(const Numbers& input) {
  double largest = 0;
  for (double a : input) largest = std::max(largest, std::abs(a));
  y = input;
  for (double& a : y) {
    if (margin != nullptr) margin->Note(std::abs(a), largest);
    a = std::max(a, 0.0);
  }
  return y;
}

Numbers ReluLayer::Backward(const Numbers& dy) const {
  Numbers dx = dy;
  for (size_t i = 0; i < dx.size(); ++i) {
    if (y[i] <= 0) dx[i] = 0;
  }
  return dx;
}

namespace {

const double kRootOfTwoOverPi = std::sqrt(2 / std::acos(-1.0));
constexpr double kCubic = 0.044715;

}  // namespace

Numbers GeluLayer::Forward(const Numbers& input) {
  x = input;
  Numbers y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double inner = kRootOfTwoOverPi * (x[i] + kCubic * x[i] * x[i] * x[i]);
    y[i] = 0.5 * x[i] * (1 + std::tanh(inner));
  }
  return y;
}

Numbers GeluLayer::Backward(const Numbers& dy) const {
  Numbers dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double inner = kRootOfTwoOverPi * (x[i] + kCubic * x[i] * x[i] * x[i]);
    const double t = std::tanh(inner);
    const double slope = kRootOfTwoOverPi * (1 + 3 * kCubic * x[i] * x[i]);
    dx[i] = dy[i] * (0.5 * (1 + t) + 0.5 * x[i] * (1 - t * t) * slope);
  }
  return dx;
}

Numbers LayerNormLayer::Forward(const Numbers& input) {
  const int64_t rows = static_cast<int64_t>(input.size()) / width;
  normalized.assign(input.size(), 0);
  inverse_deviation.assign(rows, 0);
  Numbers y(input.size());
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += input[r * width + i] / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const double d = input[r * width + i] - mean;
      variance += d * d / static_cast<double>(width);
    }
    inverse_deviation[r] = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < width; ++i) {
      normalized[r * width + i] = (input[r * width + i] - mean) * inverse_deviation[r];
      y[r * width + i] = normalized[r * width + i] * gamma->value[i] + beta->value[i];
    }
  }
  return y;
}

Numbers LayerNormLayer::Backward(const Numbers& dy) {
  const int64_t rows = static_cast<int64_t>(dy.size()) / width;
  const auto n = static_cast<double>(width);
  Numbers dx(dy.size());
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, mean_along = 0;  // of the gradient of the normalized row
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = r * width + i;
      gamma->gradient[i] += dy[at] * normalized[at];
      beta->gradient[i] += dy[at];
      mean += dy[at] * gamma->value[i] / n;
      mean_along += dy[at] * gamma->value[i] * normalized[at] / n;
    }
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = r * width + i;
      dx[at] =
          inverse_deviation[r] * (dy[at] * gamma->value[i] - mean - normalized[at] * mean_along);
    }
  }
  return dx;
}

Numbers CausalAttentionLayer::Forward(Numbers query, Numbers key, Numbers value) {
  q = std::move(query);
  k = std::move(key);
  v = std::move(value);
  weights.assign(batch * heads * time * time, 0);
  Numbers y(q.size());
  const double scale = 1 / std::sqrt(static_cast<double>(depth));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = [&](int64_t t, int64_t d) {
        return ((b * time + t) * heads + h) * depth + d;
      };
      for (int64_t t = 0; t < time; ++t) {
        double* const row = &weights[((b * heads + h) * time + t) * time];
        double largest = -1e300, sum = 0;
        for (int64_t s = 0; s <= t; ++s) {
          for (int64_t d = 0; d < depth; ++d) row[s] += scale * q[at(t, d)] * k[at(s, d)];
          largest = std::max(largest, row[s]);
        }
        for (int64_t s = 0; s <= t; ++s) sum += row[s] = std::exp(row[s] - largest);
        for (int64_t s = 0; s <= t; ++s) {
          row[s] /= sum;
          for (int64_t d = 0; d < depth; ++d) y[at(t, d)] += row[s] * v[at(s, d)];
        }
      }
    }
  }
  return y;
}

CausalAttentionLayer::Gradients CausalAttentionLayer::Backward(const Numbers& dy) const {
  Gradients d = {Numbers(q.size()), Numbers(k.size()), Numbers(v.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(depth));
  Numbers dw(time);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = [&](int64_t t, int64_t i) {
        return ((b * time + t) * heads + h) * depth + i;
      };
      for (int64_t t = 0; t < time; ++t) {
        const double* const row = &weights[((b * heads + h) * time + t) * time];
        double along = 0;
        for (int64_t s = 0; s <= t; ++s) {
          dw[s] = 0;
          for (int64_t i = 0; i < depth; ++i) {
            dw[s] += dy[at(t, i)] * v[at(s, i)];
            d.v[at(s, i)] += row[s] * dy[at(t, i)];
          }
          along += dw[s] * row[s];
        }
        for (int64_t s = 0; s <= t; ++s) {
          const double score = scale * row[s] * (dw[s] - along);
          for (int64_t i = 0; i < depth; ++i) {
            d.q[at(t, i)] += score * k[at(s, i)];
            d.k[at(s, i)] += score * q[at(t, i)];
          }
        }
      }
    }
  }
  return d;
}

Numbers EmbeddingLayer::Forward(const std::vector<int>& input) {
  indices = input;
  Numbers y;
  for (int index : indices) {
    for (int64_t i = 0; i < width; ++i) y.push_back(weight->value[index * width + i]);
  }
  return y;
}

void EmbeddingLayer::Backward(const Numbers& dy) {
  for (size_t r = 0; r < indices.size(); ++r) {
    for (int64_t i = 0; i < width; ++i) {
      weight->gradient[indices[r] * width + i] += dy[r * width + i];
    }
  }
}

double CrossEntropyLayer::Forward(const Numbers& logits, const std::vector<int>& label) {
  labels = label;
  probabilities.assign(logits.size(), 0);
  double loss = 0;
  const auto rows = static_cast<int64_t>(labels.size());
  for (int64_t r = 0; r < rows; ++r) {
    const double* const x = &logits[r * classes];
    const double largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - largest);
    for (int64_t c = 0; c < classes; ++c) {
      probabilities[r * classes + c] = std::exp(x[c] - largest) / sum;
    }
    loss += (largest + std::log(sum) - x[labels[r]]) / static_cast<double>(rows);
  }
  return loss;
}

Numbers CrossEntropyLayer::Backward() const {
  Numbers dx = probabilities;
  const auto rows = static_cast<int64_t>(labels.size());
  for (int64_t r = 0; r < rows; ++r) dx[r * classes + labels[r]] -= 1;
  for (double& d : dx) d /= static_cast<double>(rows);
  return dx;
}

void UpdateWithMomentum(const MomentumOptions& options, Parameters& parameters) {
  for (auto& [name, parameter] : parameters) {
    parameter.velocity.resize(parameter.value.size());
    for (size_t i = 0; i < parameter.value.size(); ++i) {
      double& velocity = parameter.velocity[i];
      velocity = options.momentum * velocity + std::exchange(parameter.gradient[i], 0);
      parameter.value[i] -= options.lr * velocity;
    }
  }
}

void UpdateWithAdam(const AdamOptions& options, int64_t step, Parameters& parameters) {
  const double unbias1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double unbias2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  for (auto& [name, parameter] : parameters) {
    parameter.first.resize(parameter.value.size());
    parameter.second.resize(parameter.value.size());
    for (size_t i = 0; i < parameter.value.size(); ++i) {
      const double g = std::exchange(parameter.gradient[i], 0);
      double& m = parameter.first[i];
      double& v = parameter.second[i];
      m = options.beta1 * m + (1 - options.beta1) * g;
      v = options.beta2 * v + (1 - options.beta2) * g * g;
      parameter.value[i] -= options.lr * options.weight_decay * parameter.value[i];
      parameter.value[i] -= options.lr * (m / unbias1) / (std::sqrt(v / unbias2) + options.epsilon);
    }
  }
}

}  // namespace braid::reference
