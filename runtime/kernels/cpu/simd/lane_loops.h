// Loops of batch normalization over pixels of kLanesOfBlock channels side by side, each with
// numbers of its own. Written with vectors as types: compilers would rather go along pixels.
// Included only by loops_for_isa.cc.
#pragma once

#include "runtime/kernels/cpu/simd/registers.h"
#include "runtime/kernels/cpu/simd/row_loops.h"

namespace braid::simd::BRAID_ISA {

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

template <class T>
void LaneScaleLoop(const T* x, const LaneScale<T>& c, T* y, int64_t pixels) {
  const Lanes<T> mean = Lanes<T>::Load(c.mean), factor = Lanes<T>::Load(c.factor);
  const Lanes<T> addend = Lanes<T>::Load(c.addend);
  for (int64_t p = 0; p < pixels; ++p, x += kLanesOfBlock, y += kLanesOfBlock) {
    Lanes<T> a = Lanes<T>::Load(x);
    Lanes<T>::ForEach([&](int i) { a.v[i] = (a.v[i] - mean.v[i]) * factor.v[i] + addend.v[i]; });
    a.Store(y);
  }
}

template <class T>
void LaneDotLoop(const T* x, const T* mean, const T* dy, int64_t pixels, LaneSums<T>* sums) {
  Lanes<T> sum, dot;
  const Lanes<T> center = Lanes<T>::Load(mean);
  for (int64_t p = 0; p < pixels; ++p, x += kLanesOfBlock, dy += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x), b = Lanes<T>::Load(dy);
    Lanes<T>::ForEach([&](int i) {
      sum.v[i] += b.v[i];
      dot.v[i] += b.v[i] * (a.v[i] - center.v[i]);
    });
  }
  sum.Store(sums->sum);
  dot.Store(sums->dot);
}

template <class T>
void LaneGradLoop(const T* x, const T* mean, const T* dy, const CenteredGradEach<T>& c, T* dx,
                  int64_t pixels) {
  const Lanes<T> center = Lanes<T>::Load(mean), of_dy = Lanes<T>::Load(c.of_dy);
  const Lanes<T> of_x = Lanes<T>::Load(c.of_x), addend = Lanes<T>::Load(c.addend);
  for (int64_t at = 0; at < pixels * kLanesOfBlock; at += kLanesOfBlock) {
    const Lanes<T> a = Lanes<T>::Load(x + at);
    Lanes<T> b = Lanes<T>::Load(dy + at);
    Lanes<T>::ForEach([&](int i) {
      b.v[i] = of_dy.v[i] * b.v[i] + of_x.v[i] * (a.v[i] - center.v[i]) + addend.v[i];
    });
    b.Store(dx + at);
  }
}

}  // namespace braid::simd::BRAID_ISA
