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

// What a thread of WholeGroupsKernel has under way at a time, in groups of 16 bytes.
template <class Map>
inline constexpr int kUnderWay = Map::kInputs == 1 ? 4 : 2;

// Of bf16 and f16 inputs that come in whole groups: a thread reads all of several groups before it
// computes, since 16 bytes a thread are too little to keep memory busy. The output may lie where an
// input does: a group is written by the thread that has read it.
template <class Map>
__global__ void __launch_bounds__(kThreads) WholeGroupsKernel(const PointwiseLaunch launch) {
  constexpr int kInputs = Map::kInputs, kSize = kWideGroup<float>, kParts = kUnderWay<Map>;
  using Group = StoredGroup<BFloat16, kSize>;  // of either type
  const Map map(launch);
  for (int64_t first = FirstIndex(); first < launch.groups; first += kParts * IndexStep()) {
    Group groups[kParts][kInputs];
    BRAID_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const int64_t g = first + p * IndexStep();
      if (g >= launch.groups) break;
      const int64_t i = g * kSize;
      GroupPlace<kInputs> place;
      if constexpr (!Map::kIsDense) place = PlaceOf<kInputs>(launch.walk, i);
      BRAID_UNROLL
      for (int k = 0; k < kInputs; ++k) {
        const int64_t at = Map::kIsDense ? i : place.at[k + 1];
        groups[p][k] =
            *reinterpret_cast<const Group*>(static_cast<const BFloat16*>(launch.inputs[k]) + at);
      }
    }
    BRAID_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const int64_t g = first + p * IndexStep();
      if (g >= launch.groups) break;
      float x[kInputs][kSize];
      for (int k = 0; k < kInputs; ++k) {
        LoadGroup(launch.types[k], groups[p][k].values, 0, kSize, x[k]);
      }
      typename Map::Out y[kSize];
      for (int j = 0; j < kSize; ++j) {
        if constexpr (kInputs == 1) {
          y[j] = map(x[0][j]);
        } else {
          y[j] = map(x[0][j], x[1][j]);
        }
      }
      StoreGroup(launch.out_type, launch.output, g * kSize, kSize, y);
    }
  }
}

// Whether a launch in groups is WholeGroupsKernel's.
inline bool HasWholeGroups(const PointwiseLaunch& launch, int inputs) {
  const Walk& walk = launch.walk;
  if (launch.group != kWideGroup<float> || walk.elements % launch.group != 0) return false;
  for (int k = 0; k < inputs; ++k) {
    const bool is_narrow = launch.types[k] == DType::kBF16 || launch.types[k] == DType::kF16;
    const bool is_repeated = walk.rank > 0 && walk.stride[k + 1][walk.rank - 1] == 0;
    if (!is_narrow || is_repeated) return false;
  }
  return true;
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
  if constexpr (std::is_same_v<typename Map::In, float>) {
    if (HasWholeGroups(grouped, Map::kInputs)) {
      const int64_t threads = (grouped.groups + kUnderWay<Map> - 1) / kUnderWay<Map>;
      return Launch(queue, BlocksFor(queue, threads), kThreads, WholeGroupsKernel<Map>, grouped);
    }
  }
  return Launch(queue, BlocksFor(queue, grouped.groups), kThreads, PointwiseKernel<Map>, grouped);
}

}  // namespace braid::cuda
