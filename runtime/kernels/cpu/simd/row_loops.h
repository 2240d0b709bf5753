// Loops over one row: reductions, softmax, layer norm. Included only by
// loops_for_isa.cc.
//
// A reduction keeps kLanes partial results side by side, element i in lane i % kLanes, and joins
// them in a fixed tree: it vectorises without reassociation, and its order depends on n alone. Sums
// are cut in blocks joined in double, so that long float sums stay accurate.
#pragma once

#include "runtime/kernels/cpu/simd/elementwise_loops.h"
#include "runtime/kernels/cpu/simd/loops.h"
#include "runtime/kernels/cpu/simd/math.h"

namespace braid::simd::BRAID_ISA {

template <class T>
inline constexpr int kLanes = 128 / sizeof(T);
inline constexpr int64_t kSumBlock = 8192;

template <class T>
BRAID_INLINE T Infinity() {
  return static_cast<T>(__builtin_inf());
}

// The upper half of the lanes onto the lower half, and again; each width is a constant.
template <class Op, class T, int width = kLanes<T>>
BRAID_INLINE T JoinLanes(const T* lanes) {
  if constexpr (width == 1) {
    return lanes[0];
  } else {
    T joined[width / 2];
    for (int j = 0; j < width / 2; ++j) joined[j] = Op::F(lanes[j], lanes[j + width / 2]);
    return JoinLanes<Op, T, width / 2>(joined);
  }
}

// Joins f(0), ..., f(n - 1) with Op.
template <class Op, class T, class Function>
BRAID_INLINE T Reduce(int64_t n, T identity, Function f) {
  T lanes[kLanes<T>];
  for (int j = 0; j < kLanes<T>; ++j) lanes[j] = identity;
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    BRAID_INDEPENDENT
    for (int j = 0; j < kLanes<T>; ++j) lanes[j] = Op::F(lanes[j], f(i + j));
  }
  if (i < n) {
    // Apart from the join, so that a row's end vectorises too.
    T rest[kLanes<T>];
    for (int j = 0; j < kLanes<T>; ++j) rest[j] = identity;
    const int size = static_cast<int>(n - i);
    BRAID_INDEPENDENT
    for (int j = 0; j < size; ++j) rest[j] = f(i + j);
    for (int j = 0; j < kLanes<T>; ++j) lanes[j] = Op::F(lanes[j], rest[j]);
  }
  return JoinLanes<Op, T>(lanes);
}

template <class T, class Function>
BRAID_INLINE T SumOf(int64_t n, Function f) {
  if (n <= kSumBlock) return Reduce<Add, T>(n, T{0}, f);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t size = n - begin < kSumBlock ? n - begin : kSumBlock;
    total += Reduce<Add, T>(
        size, T{0}, [&](int64_t i) __attribute__((always_inline)) { return f(begin + i); });
  }
  return static_cast<T>(total);
}

template <class T>
T SumLoop(const T* x, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return x[i]; });
}
template <class T>
T MaxLoop(const T* x, int64_t n) {
  return Reduce<Maximum, T>(n, -Infinity<T>(), [=](int64_t i) { return x[i]; });
}
template <class T>
T MinLoop(const T* x, int64_t n) {
  return Reduce<Minimum, T>(n, Infinity<T>(), [=](int64_t i) { return x[i]; });
}
template <class T>
T DotLoop(const T* a, const T* b, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return a[i] * b[i]; });
}

template <class T>
T SumSquareLoop(const T* x, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return x[i] * x[i]; });
}
template <class T>
T SumAbsLoop(const T* x, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return Abs(x[i]); });
}
template <class T>
T ProductLoop(const T* x, int64_t n) {
  return Reduce<Mul, T>(n, T{1}, [=](int64_t i) { return x[i]; });
}

struct Itself {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return x;
  }
};

// Columns that the registers hold the sums of.
template <class T>
inline constexpr int kColumns = 2 * kLanes<T>;

// sum[j] += Op's result, row by row, of a row's first `width` elements.
template <class Op, class T>
BRAID_INLINE void AddColumns(const T* x, int64_t rows, int64_t stride, T (&sum)[kColumns<T>],
                             int width) {
  if (width == kColumns<T>) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int j = 0; j < kColumns<T>; ++j) sum[j] += Op::F(x[row * stride + j], T{0});
    }
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      for (int j = 0; j < width; ++j) sum[j] += Op::F(x[row * stride + j], T{0});
    }
  }
}

// The sums over rows of Op's results.
template <class Op, class T>
void SumRowsLoop(const T* x, int64_t rows, int64_t stride, T* out, int64_t n) {
  constexpr int kTile = kColumns<T>;
  for (int64_t column = 0; column < n; column += kTile) {
    const int width = static_cast<int>(n - column < kTile ? n - column : kTile);
    double total[kTile];
    for (int j = 0; j < kTile; ++j) total[j] = 0;
    for (int64_t begin = 0; begin < rows; begin += kSumRowBlock) {
      T sum[kTile];
      for (int j = 0; j < kTile; ++j) sum[j] = 0;
      const int64_t block = rows - begin < kSumRowBlock ? rows - begin : kSumRowBlock;
      AddColumns<Op, T>(x + begin * stride + column, block, stride, sum, width);
      for (int j = 0; j < kTile; ++j) total[j] += static_cast<double>(sum[j]);
    }
    for (int j = 0; j < width; ++j) out[column + j] = static_cast<T>(total[j]);
  }
}

template <class T>
void AddRowsLoop(const T* x, int64_t rows, int64_t stride, T* out, int64_t n) {
  constexpr int kTile = kColumns<T>;
  for (int64_t column = 0; column < n; column += kTile) {
    const int width = static_cast<int>(n - column < kTile ? n - column : kTile);
    T sum[kTile];
    for (int j = 0; j < width; ++j) sum[j] = out[column + j];
    AddColumns<Itself, T>(x + column, rows, stride, sum, width);
    for (int j = 0; j < width; ++j) out[column + j] = sum[j];
  }
}

template <class T>
T SumExpLoop(const T* x, T max, int64_t n) {
  return SumOf<T>(n, [=](int64_t i) { return Exp(x[i] - max); });
}

// y = exp(scale * x - max), returns the sum.
template <class T>
BRAID_INLINE T ExpAndSum(const T* x, T* y, int64_t n, T scale, T max) {
  return SumOf<T>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        const T e = Exp(scale * x[i] - max);
        y[i] = e;
        return e;
      });
}

template <class T>
void SoftmaxLoop(const T* x, T* y, int64_t n, T scale) {
  const T extreme = scale < T{0} ? MinLoop(x, n) : MaxLoop(x, n);
  const T sum = ExpAndSum(x, y, n, scale, scale * extreme);
  const T factor = T{1} / sum;
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

template <class T>
T ExpAndSumLoop(const T* x, T* y, int64_t n, T scale, T max) {
  return ExpAndSum(x, y, n, scale, max);
}

template <class T>
void AttentionWeightsGradLoop(T* scores, T* gradient, int64_t n, const AttentionRow& row) {
  const T scale = static_cast<T>(row.scale), lse = static_cast<T>(row.lse);
  const T delta = static_cast<T>(row.delta), factor = static_cast<T>(row.factor);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T p = Exp(scale * scores[i] - lse);
    scores[i] = p;
    gradient[i] = factor * p * (gradient[i] - delta);
  }
}

template <class T>
void ScaleAddLoop(const T* a, T scale, T* x, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = scale * x[i] + a[i];
}

template <class T>
void ScaleWhereLoop(const uint8_t* keep, T scale, T* x, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = keep[i] != 0 ? scale * x[i] : -Infinity<T>();
}

template <class T>
void SoftmaxGradLoop(const T* y, const T* dy, T* dx, int64_t n, T scale) {
  const T dot = DotLoop(y, dy, n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * y[i] * (dy[i] - dot);
}

template <class T>
void LogSoftmaxLoop(const T* x, T* y, int64_t n) {
  const T max = MaxLoop(x, n);
  const T log_sum = Log(SumExpLoop(x, max, n));
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - max - log_sum;
}

template <class T>
void LogSoftmaxGradLoop(const T* y, const T* dy, T* dx, int64_t n) {
  const T sum = SumLoop(dy, n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - Exp(y[i]) * sum;
}

template <class T>
void ScaledExpLoop(const T* x, T* y, int64_t n, T max, T factor) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = factor * Exp(x[i] - max);
}

template <class T>
void AddScaledLoop(const T* x, T factor, T* y, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <class T>
void LayerNormLoop(const T* x, const T* gamma, const T* beta, T* y, int64_t n, T epsilon,
                   T* mean_out, T* rstd_out) {
  const T mean = SumLoop(x, n) / static_cast<T>(n);
  const T variance = SumOf<T>(n,
                              [=](int64_t i) {
                                const T d = x[i] - mean;
                                return d * d;
                              }) /
                     static_cast<T>(n);
  const T rstd = T{1} / Sqrt(variance + epsilon);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
  *mean_out = mean;
  *rstd_out = rstd;
}

template <class T>
void LayerNormGradLoop(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, T* dgamma,
                       T* dbeta, int64_t n) {
  // g = dy * gamma, h = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g h)).
  const T mean_g = DotLoop(dy, gamma, n) / static_cast<T>(n);
  const T mean_gh =
      SumOf<T>(n, [=](int64_t i) { return dy[i] * gamma[i] * ((x[i] - mean) * rstd); }) /
      static_cast<T>(n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T h = (x[i] - mean) * rstd;
    const T d = dy[i];
    dgamma[i] += d * h;
    dbeta[i] += d;
    dx[i] = rstd * (d * gamma[i] - mean_g - h * mean_gh);
  }
}

template <class T>
T RmsNormLoop(const T* x, const T* gamma, T* y, int64_t n, T epsilon) {
  const T rstd = T{1} / Sqrt(DotLoop(x, x, n) / static_cast<T>(n) + epsilon);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * gamma[i];
  return rstd;
}

template <class T>
void RmsNormGradLoop(const T* x, const T* gamma, T rstd, const T* dy, T* dx, T* dgamma, int64_t n) {
  // g = dy * gamma, h = x * rstd: dx = rstd * (g - h * mean(g h)).
  const T mean_gh =
      SumOf<T>(n, [=](int64_t i) { return dy[i] * gamma[i] * (x[i] * rstd); }) / static_cast<T>(n);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T h = x[i] * rstd;
    const T d = dy[i];
    dgamma[i] += d * h;
    dx[i] = rstd * (d * gamma[i] - h * mean_gh);
  }
}

template <class T>
void RotatePairsLoop(const T* x, const T* cos, const T* sin, T* y, int64_t pairs) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cos[i] - b * sin[i];
    y[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

template <class T>
void RotateHalvesLoop(const T* x, const T* cos, const T* sin, T* y, int64_t pairs) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = x[i], b = x[pairs + i];
    y[i] = a * cos[i] - b * sin[i];
    y[pairs + i] = b * cos[i] + a * sin[i];
  }
}

template <class T>
void DropoutLoop(const T* x, const uint32_t* words, T* out, int64_t n, float rate, T scale) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    // As UniformFromWord of runtime/base/philox.h; below 2^24, so that int32 converts it.
    const float uniform = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
    out[i] = uniform >= rate ? x[i] * scale : T{0};
  }
}

}  // namespace braid::simd::BRAID_ISA
