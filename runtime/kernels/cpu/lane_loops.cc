// Batch norm over pixels of kLanesOfBlock channels side by side, each with numbers of its own.
// Written with vectors as types: compilers would rather go along pixels.
#include "runtime/kernels/cpu/lane_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/registers.h"

namespace braid::simd {
namespace BRAID_ISA {

// A pixel's channels, in a few registers.
template <class T>
struct Lanes {
  using Vector = typename VectorOf<T>::Type;
  static constexpr int kWidth = kVectorSize<T>;
  static constexpr int kVectors = kLanesOfBlock / kWidth;
  Vector v[kVectors] = {};

  static Lanes Load(const T* from) {
    Lanes lanes;
    ForEach([&](int i) { __builtin_memcpy(&lanes.v[i], from + i * kWidth, sizeof(Vector)); });
    return lanes;
  }
  void Store(T* to) const {
    ForEach([&](int i) { __builtin_memcpy(to + i * kWidth, &v[i], sizeof(Vector)); });
  }
  // f(vector number) for each; unrolled.
  template <class F>
  static void ForEach(F f) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) f(i);
  }
};

template <class T>
void LaneSumLoop(const T* x, int64_t pixels, T* sum) {
  Lanes<T> total;
  for (int64_t p = 0; p < pixels; ++p, x += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x);
    Lanes<T>::ForEach([&](int i) { total.v[i] += a.v[i]; });
  }
  total.Store(sum);
}

template <class T>
void LaneSquareSumLoop(const T* x, const T* mean, int64_t pixels, T* sum) {
  Lanes<T> total;
  const Lanes<T> center = Lanes<T>::Load(mean);
  for (int64_t p = 0; p < pixels; ++p, x += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x);
    Lanes<T>::ForEach([&](int i) {
      const auto d = a.v[i] - center.v[i];
      total.v[i] += d * d;
    });
  }
  total.Store(sum);
}

// x normalized: (x - mean) * factor + addend, before what a rectifier makes of it.
template <class T>
struct LaneNorm {
  using Vector = typename VectorOf<T>::Type;
  Lanes<T> mean, factor, addend;

  explicit LaneNorm(const LaneScale<T>& c)
      : mean(Lanes<T>::Load(c.mean)),
        factor(Lanes<T>::Load(c.factor)),
        addend(Lanes<T>::Load(c.addend)) {}
  Vector At(int i, Vector x) const { return (x - mean.v[i]) * factor.v[i] + addend.v[i]; }
  // dy where a rectifier let the normalized x through.
  Vector Passed(int i, Vector x, Vector dy) const { return At(i, x) > Vector{} ? dy : Vector{}; }
};

template <class T, bool adds, bool rectifies>
void LaneScaleAs(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels) {
  using Vector = typename VectorOf<T>::Type;
  const LaneNorm<T> norm(c);
  for (int64_t at = 0; at < pixels * kLanesOfBlock; at += kLanesOfBlock) {
    Lanes<T> a = Lanes<T>::Load(x + at), b;
    if constexpr (adds) b = Lanes<T>::Load(more + at);
    Lanes<T>::ForEach([&](int i) {
      a.v[i] = norm.At(i, a.v[i]);
      if constexpr (adds) a.v[i] += b.v[i];
      if constexpr (rectifies) a.v[i] = a.v[i] < Vector{} ? Vector{} : a.v[i];
    });
    a.Store(y + at);
  }
}

template <class T>
void LaneScaleLoop(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels) {
  if (more != nullptr) {
    (c.rectifies ? LaneScaleAs<T, true, true> : LaneScaleAs<T, true, false>)(x, c, more, y, pixels);
  } else {
    (c.rectifies ? LaneScaleAs<T, false, true> : LaneScaleAs<T, false, false>)(x, c, more, y,
                                                                               pixels);
  }
}

template <class T, bool rectifies>
void LaneDotAs(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels, LaneSums<T>* sums) {
  Lanes<T> sum, dot;
  const LaneNorm<T> norm(c);
  for (int64_t p = 0; p < pixels; ++p, x += kLanesOfBlock, dy += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x);
    Lanes<T> b = Lanes<T>::Load(dy);
    Lanes<T>::ForEach([&](int i) {
      if constexpr (rectifies) b.v[i] = norm.Passed(i, a.v[i], b.v[i]);
      sum.v[i] += b.v[i];
      dot.v[i] += b.v[i] * (a.v[i] - norm.mean.v[i]);
    });
  }
  sum.Store(sums->sum);
  dot.Store(sums->dot);
}

template <class T>
void LaneDotLoop(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels,
                 LaneSums<T>* sums) {
  (c.rectifies ? LaneDotAs<T, true> : LaneDotAs<T, false>)(x, c, dy, pixels, sums);
}

template <class T, bool rectifies>
void LaneGradAs(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g, T* dx,
                int64_t pixels) {
  const LaneNorm<T> norm(c);
  const Lanes<T> of_dy = Lanes<T>::Load(g.of_dy), of_x = Lanes<T>::Load(g.of_x);
  const Lanes<T> addend = Lanes<T>::Load(g.addend);
  for (int64_t at = 0; at < pixels * kLanesOfBlock; at += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x + at);
    Lanes<T> b = Lanes<T>::Load(dy + at);
    Lanes<T>::ForEach([&](int i) {
      if constexpr (rectifies) b.v[i] = norm.Passed(i, a.v[i], b.v[i]);
      b.v[i] = of_dy.v[i] * b.v[i] + of_x.v[i] * (a.v[i] - norm.mean.v[i]) + addend.v[i];
    });
    b.Store(dx + at);
  }
}

template <class T>
void LaneGradLoop(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g,
                  T* dx, int64_t pixels) {
  (c.rectifies ? LaneGradAs<T, true> : LaneGradAs<T, false>)(x, c, dy, g, dx, pixels);
}

template <class T>
constexpr LaneLoops<T> kLaneLoops = {.lane_sum = LaneSumLoop<T>,
                                     .lane_square_sum = LaneSquareSumLoop<T>,
                                     .lane_scale = LaneScaleLoop<T>,
                                     .lane_dot = LaneDotLoop<T>,
                                     .lane_grad = LaneGradLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(LaneLoops<float>, BRAID_ISA::kLaneLoops<float>)
BRAID_DEFINE_LOOPS(LaneLoops<double>, BRAID_ISA::kLaneLoops<double>)

}  // namespace braid::simd
