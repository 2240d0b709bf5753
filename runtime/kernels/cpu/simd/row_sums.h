// Sums, extremes and products of one row, which loops of several families are made of. Included
// only by sources that are compiled once per instruction set.
//
// A reduction keeps kLanes partial results side by side, element i in lane i % kLanes, and joins
// them in a fixed tree: it vectorises without reassociation, and its order depends on n alone. Sums
// are cut in blocks joined in double, so that long float sums stay accurate.
#pragma once

#include "runtime/kernels/functions/element_ops.h"
#include "runtime/kernels/functions/math.h"

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

// As Reduce, of at most `width` elements: without the lanes that would hold identities, and with
// the same result.
template <int width, class Op, class T, class Function>
BRAID_INLINE T ReduceFew(int64_t n, T identity, Function f) {
  T lanes[width];
  if (n == width) {
    BRAID_INDEPENDENT
    for (int j = 0; j < width; ++j) lanes[j] = Op::F(identity, f(j));
  } else {
    for (int j = 0; j < width; ++j) lanes[j] = identity;
    const int size = static_cast<int>(n);
    BRAID_INDEPENDENT
    for (int j = 0; j < size; ++j) lanes[j] = Op::F(identity, f(j));
  }
  return JoinLanes<Op, T, width>(lanes);
}

// Joins f(0), ..., f(n - 1) with Op.
template <class Op, class T, class Function>
BRAID_INLINE T Reduce(int64_t n, T identity, Function f) {
  if (n <= kLanes<T> / 4) return ReduceFew<kLanes<T> / 4, Op, T>(n, identity, f);
  if (n <= kLanes<T> / 2) return ReduceFew<kLanes<T> / 2, Op, T>(n, identity, f);
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

}  // namespace braid::simd::BRAID_ISA
