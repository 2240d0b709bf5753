// The kernel of all that works element by element: a map makes an element of the output of the
// inputs' elements at its place. Included only by the sources of kernels.
#pragma once

#include "runtime/kernels/cuda/element_groups.h"
#include "runtime/kernels/cuda/pointwise.h"

namespace braid::cuda {

// OffsetsOf, of which 32 bits are enough for all but the largest tensors.
template <int kOperands>
__device__ __forceinline__ Offsets<kOperands> PointwiseOffsets(const Walk& walk, int64_t i) {
  if (walk.elements > INT32_MAX) return OffsetsOf<kOperands>(walk, i);
  Offsets<kOperands> offsets;
  uint32_t rest = static_cast<uint32_t>(i);
  for (int d = walk.rank - 1; d >= 0; --d) {
    const uint32_t size = static_cast<uint32_t>(walk.size[d]), outer = rest / size;
    const int64_t index = rest - outer * size;
    rest = outer;
    for (int k = 0; k < kOperands; ++k) offsets.at[k] += index * walk.stride[k][d];
  }
  return offsets;
}

// Where the group from element `i` on lies in the operands, and the strides in it (0 or 1 in
// groups of more than one element).
// What a map of so many operands has.
template <int n>
struct Inputs {
  static constexpr int kInputs = n;
};

template <int kInputs>
struct GroupPlace {
  int64_t at[kInputs + 1], stride[kInputs + 1];
};
template <int kInputs>
__device__ __forceinline__ GroupPlace<kInputs> PlaceOf(const Walk& walk, int64_t i) {
  GroupPlace<kInputs> place;
  const int last = walk.rank > 0 ? walk.rank - 1 : 0;
  for (int k = 0; k <= kInputs; ++k) place.stride[k] = walk.stride[k][last];
  if (walk.rank <= 1) {
    for (int k = 0; k <= kInputs; ++k) place.at[k] = i * place.stride[k];
  } else {
    const Offsets<kInputs + 1> offsets = PointwiseOffsets<kInputs + 1>(walk, i);
    for (int k = 0; k <= kInputs; ++k) place.at[k] = offsets.at[k];
  }
  return place;
}

template <class C, int n>
__device__ __forceinline__ void LoadPlaced(DType type, const void* data, int64_t at, int64_t stride,
                                           int count, C (&values)[n]) {
  if (stride == 0) {
    LoadRepeated(type, data, at, values);
  } else {
    LoadGroup(type, data, at, count, values);
  }
}

// Map: In, Out, kInputs, kIsDense (all inputs lie as the output does), made of a launch on the
// device, Out operator()(In...).
template <class Map>
__global__ void __launch_bounds__(kThreads) PointwiseKernel(const PointwiseLaunch launch) {
  using In = typename Map::In;
  constexpr int kInputs = Map::kInputs, kSize = kWideGroup<In>;
  const Map map(launch);
  for (int64_t g = FirstIndex(); g < launch.groups; g += IndexStep()) {
    const int64_t i = g * launch.group, left = launch.walk.elements - i;
    const int count = static_cast<int>(left < launch.group ? left : launch.group);
    In x[kInputs][kSize] = {};
    if constexpr (Map::kIsDense) {
      for (int k = 0; k < kInputs; ++k) {
        LoadGroup(launch.types[k], launch.inputs[k], i, count, x[k]);
      }
    } else {
      const GroupPlace<kInputs> place = PlaceOf<kInputs>(launch.walk, i);
      for (int k = 0; k < kInputs; ++k) {
        LoadPlaced(launch.types[k], launch.inputs[k], place.at[k + 1], place.stride[k + 1], count,
                   x[k]);
      }
    }
    typename Map::Out y[kSize] = {};
    for (int j = 0; j < kSize; ++j) {
      if (j >= count) break;
      if constexpr (kInputs == 1) {
        y[j] = map(x[0][j]);
      } else {
        y[j] = map(x[0][j], x[1][j]);
      }
    }
    StoreGroup(launch.out_type, launch.output, i, count, y);
  }
}

// The launch in groups of `size` elements of `inputs` inputs, or of half as many or of one where
// these are not in one piece everywhere.
inline PointwiseLaunch InGroups(PointwiseLaunch launch, int size, int inputs) {
  const Walk& walk = launch.walk;
  bool is_whole = IsAligned(launch.output);
  for (int k = 0; k < inputs; ++k) is_whole = is_whole && IsAligned(launch.inputs[k]);
  const int64_t row = walk.rank <= 1 ? size : walk.size[walk.rank - 1];
  launch.group = 1;
  if (is_whole && row % size == 0) {
    launch.group = size;
  } else if (is_whole && row % (size / 2) == 0) {
    launch.group = size / 2;
  }
  launch.groups = (walk.elements + launch.group - 1) / launch.group;
  return launch;
}

template <class Map>
Error LaunchMap(const Queue& queue, const PointwiseLaunch& launch) {
  if (launch.walk.elements == 0) return kDone;
  const PointwiseLaunch grouped = InGroups(launch, kWideGroup<typename Map::In>, Map::kInputs);
  return Launch(queue, BlocksFor(queue, grouped.groups), kThreads, PointwiseKernel<Map>, grouped);
}

}  // namespace braid::cuda
