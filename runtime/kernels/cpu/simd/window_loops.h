// Loops over rows that windows read with a stride: pooling. Included only by loops_for_isa.cc.
#pragma once

#include "runtime/kernels/cpu/simd/elementwise_loops.h"

namespace braid::simd::BRAID_ISA {

// Calls f(i, i * stride) for i < n; the usual strides are constants there.
template <class F>
BRAID_INLINE void ForEachStrided(int64_t n, int64_t stride, F f) {
  if (stride == 1) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, i);
  } else if (stride == 2) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, 2 * i);
  } else {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) f(i, i * stride);
  }
}

template <class T>
void AddStridedLoop(const T* x, int64_t stride, T* y, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) { y[i] += x[at]; });
}

template <class T>
void MaxStridedLoop(const T* x, int64_t stride, T* y, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) {
        y[i] = Maximum::F(y[i], x[at]);
      });
}

template <class T>
void ArgMaxStridedLoop(const T* x, int64_t stride, int32_t first, T* best, int32_t* index,
                       int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) {
        const T value = x[at], most = best[i];
        const int32_t before = index[i];
        // A NaN counts as the largest; the first element is taken even if it is -inf.
        const bool is_more = (value > most) | (before < 0) | ((value != value) & (most == most));
        best[i] = is_more ? value : most;
        index[i] = is_more ? first + static_cast<int32_t>(at) : before;
      });
}

template <class T>
void ScatterStridedLoop(const T* x, T* y, int64_t stride, int64_t n) {
  ForEachStrided(
      n, stride, [=](int64_t i, int64_t at) __attribute__((always_inline)) { y[at] += x[i]; });
}

}  // namespace braid::simd::BRAID_ISA
