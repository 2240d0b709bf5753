// Batch norm over pixels of 8 or 16 channels side by side, each with numbers of its own.
// Written with vectors as types: compilers would rather go along pixels.
#include "runtime/kernels/cpu/lane_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/registers.h"

namespace braid::simd {
namespace BRAID_ISA {

// What a register holds of a pixel's channels.
template <class T, int lanes>
struct LaneVector : VectorOf<T> {};
template <>
struct LaneVector<float, kFewLanes> {  // they fill half a register of AVX-512
  static constexpr int kFew = kFewLanes * static_cast<int>(sizeof(float));
  typedef float Type __attribute__((vector_size(kVectorBytes < kFew ? kVectorBytes : kFew)));
};

// A pixel's channels, in a few registers.
template <class T, int lanes>
struct Lanes {
  using Vector = typename LaneVector<T, lanes>::Type;
  static constexpr int kWidth = static_cast<int>(sizeof(Vector) / sizeof(T));
  static constexpr int kVectors = lanes / kWidth;
  Vector v[kVectors] = {};

  static Lanes Load(const T* from) {
    Lanes read;
    ForEach([&](int i) { __builtin_memcpy(&read.v[i], from + i * kWidth, sizeof(Vector)); });
    return read;
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

template <class T, int lanes>
void LaneSumLoop(const T* x, int64_t pixels, T* sum) {
  Lanes<T, lanes> total;
  for (int64_t p = 0; p < pixels; ++p, x += lanes) {
    const Lanes<T, lanes> a = Lanes<T, lanes>::Load(x);
    Lanes<T, lanes>::ForEach([&](int i) { total.v[i] += a.v[i]; });
  }
  total.Store(sum);
}

template <class T, int lanes>
void LaneSquareSumLoop(const T* x, const T* mean, int64_t pixels, T* sum) {
  Lanes<T, lanes> total;
  const Lanes<T, lanes> center = Lanes<T, lanes>::Load(mean);
  for (int64_t p = 0; p < pixels; ++p, x += lanes) {
    const Lanes<T, lanes> a = Lanes<T, lanes>::Load(x);
    Lanes<T, lanes>::ForEach([&](int i) {
      const auto d = a.v[i] - center.v[i];
      total.v[i] += d * d;
    });
  }
  total.Store(sum);
}

// x normalized: (x - mean) * factor + addend, before what a rectifier makes of it.
template <class T, int lanes>
struct LaneNorm {
  using Vector = typename LaneVector<T, lanes>::Type;
  Lanes<T, lanes> mean, factor, addend;

  explicit LaneNorm(const LaneScale<T>& c)
      : mean(Lanes<T, lanes>::Load(c.mean)),
        factor(Lanes<T, lanes>::Load(c.factor)),
        addend(Lanes<T, lanes>::Load(c.addend)) {}
  Vector At(int i, Vector x) const { return (x - mean.v[i]) * factor.v[i] + addend.v[i]; }
  // dy where a rectifier let the normalized x through.
  Vector Passed(int i, Vector x, Vector dy) const { return At(i, x) > Vector{} ? dy : Vector{}; }
};

template <class T, int lanes, bool adds, bool rectifies>
void LaneScaleAs(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels) {
  using Vector = typename LaneVector<T, lanes>::Type;
  const LaneNorm<T, lanes> norm(c);
  for (int64_t at = 0; at < pixels * lanes; at += lanes) {
    Lanes<T, lanes> a = Lanes<T, lanes>::Load(x + at), b;
    if constexpr (adds) b = Lanes<T, lanes>::Load(more + at);
    Lanes<T, lanes>::ForEach([&](int i) {
      a.v[i] = norm.At(i, a.v[i]);
      if constexpr (adds) a.v[i] += b.v[i];
      if constexpr (rectifies) a.v[i] = a.v[i] < Vector{} ? Vector{} : a.v[i];
    });
    a.Store(y + at);
  }
}

template <class T, int lanes>
void LaneScaleLoop(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels) {
  if (more != nullptr) {
    (c.rectifies ? LaneScaleAs<T, lanes, true, true>
                 : LaneScaleAs<T, lanes, true, false>)(x, c, more, y, pixels);
  } else {
    (c.rectifies ? LaneScaleAs<T, lanes, false, true>
                 : LaneScaleAs<T, lanes, false, false>)(x, c, more, y, pixels);
  }
}

template <class T, int lanes, bool rectifies>
void LaneDotAs(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels, LaneSums<T>* sums) {
  Lanes<T, lanes> sum, dot;
  const LaneNorm<T, lanes> norm(c);
  for (int64_t p = 0; p < pixels; ++p, x += lanes, dy += lanes) {
    const Lanes<T, lanes> a = Lanes<T, lanes>::Load(x);
    Lanes<T, lanes> b = Lanes<T, lanes>::Load(dy);
    Lanes<T, lanes>::ForEach([&](int i) {
      if constexpr (rectifies) b.v[i] = norm.Passed(i, a.v[i], b.v[i]);
      sum.v[i] += b.v[i];
      dot.v[i] += b.v[i] * (a.v[i] - norm.mean.v[i]);
    });
  }
  sum.Store(sums->sum);
  dot.Store(sums->dot);
}

template <class T, int lanes>
void LaneDotLoop(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels,
                 LaneSums<T>* sums) {
  (c.rectifies ? LaneDotAs<T, lanes, true> : LaneDotAs<T, lanes, false>)(x, c, dy, pixels, sums);
}

template <class T, int lanes, bool rectifies>
void LaneGradAs(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g, T* dx,
                int64_t pixels) {
  const LaneNorm<T, lanes> norm(c);
  const Lanes<T, lanes> of_dy = Lanes<T, lanes>::Load(g.of_dy),
                        of_x = Lanes<T, lanes>::Load(g.of_x);
  const Lanes<T, lanes> addend = Lanes<T, lanes>::Load(g.addend);
  for (int64_t at = 0; at < pixels * lanes; at += lanes) {
    const Lanes<T, lanes> a = Lanes<T, lanes>::Load(x + at);
    Lanes<T, lanes> b = Lanes<T, lanes>::Load(dy + at);
    Lanes<T, lanes>::ForEach([&](int i) {
      if constexpr (rectifies) b.v[i] = norm.Passed(i, a.v[i], b.v[i]);
      b.v[i] = of_dy.v[i] * b.v[i] + of_x.v[i] * (a.v[i] - norm.mean.v[i]) + addend.v[i];
    });
    b.Store(dx + at);
  }
}

template <class T, int lanes>
void LaneGradLoop(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g,
                  T* dx, int64_t pixels) {
  (c.rectifies ? LaneGradAs<T, lanes, true> : LaneGradAs<T, lanes, false>)(x, c, dy, g, dx, pixels);
}

template <class T, int lanes>
constexpr LaneLoops<T> kLaneLoops = {.lane_sum = LaneSumLoop<T, lanes>,
                                     .lane_square_sum = LaneSquareSumLoop<T, lanes>,
                                     .lane_scale = LaneScaleLoop<T, lanes>,
                                     .lane_dot = LaneDotLoop<T, lanes>,
                                     .lane_grad = LaneGradLoop<T, lanes>};
template <class T>
constexpr BlockLoops<T> kBlockLoops = {.few = kLaneLoops<T, kFewLanes>,
                                       .many = kLaneLoops<T, kManyLanes>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(BlockLoops<float>, BRAID_ISA::kBlockLoops<float>)
BRAID_DEFINE_LOOPS(BlockLoops<double>, BRAID_ISA::kBlockLoops<double>)

}  // namespace braid::simd
