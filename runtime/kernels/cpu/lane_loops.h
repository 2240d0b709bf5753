// Loops of batch norm in blocks: `pixels` of so many channels side by side, which have a number
// each.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/norm_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// Channels that lie side by side: there are loops for either.
inline constexpr int kFewLanes = 8, kManyLanes = 16;
// Numbers of the channels, and sums of them.
// (x - mean) * factor + addend; with `rectifies` 0 where that is less.
template <class T>
struct LaneScale {
  const T *mean, *factor, *addend;
  bool rectifies = false;
};
template <class T>
struct LaneSums {
  T sum[kManyLanes], dot[kManyLanes];  // the first of them, if there are few
};

template <class T>
struct LaneLoops {
  void (*lane_sum)(const T* x, int64_t pixels, T* sum);
  void (*lane_square_sum)(const T* x, const T* mean, int64_t pixels, T* sum);
  // `more`, unless it is null, is added before the rectifier.
  void (*lane_scale)(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels);
  // Of dy where the rectifier let x through.
  void (*lane_dot)(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels,
                   LaneSums<T>* sums);
  void (*lane_grad)(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g,
                    T* dx, int64_t pixels);
};

template <class T>
struct BlockLoops {
  LaneLoops<T> few, many;
  const LaneLoops<T>& of(int64_t lanes) const { return lanes == kFewLanes ? few : many; }
};

BRAID_DECLARE_LOOPS(BlockLoops<float>)
BRAID_DECLARE_LOOPS(BlockLoops<double>)

}  // namespace braid::simd
