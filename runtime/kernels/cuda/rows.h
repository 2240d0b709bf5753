// Rows of neighbouring elements, each of them the work of a team of threads: a warp where rows are
// short, a block where they are long. For the sources that a CUDA compiler reads.
#pragma once

#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {

inline constexpr int64_t kWarpRow = 1024;  // the longest row that is a warp's
inline constexpr int kWarpThreads = 32;

// How many teams there are: they loop over the rows.
struct Teams {
  unsigned blocks, threads;
  bool are_warps;
};
inline Teams TeamsFor(const Queue& queue, int64_t rows, int64_t size) {
  Teams teams = {.blocks = 0, .threads = kThreads, .are_warps = size <= kWarpRow};
  if (rows == 0) return teams;
  int64_t warps = kThreads / kWarpThreads;
  if (teams.are_warps) {
    warps = rows < warps ? rows : warps;
    teams.threads = static_cast<unsigned>(warps) * kWarpThreads;
  }
  teams.blocks = BlocksFor(queue, rows, teams.are_warps ? static_cast<int>(warps) : 1);
  return teams;
}

// A thread's place: for (row = team.row; row < rows; row += team.row_step), and in a row
// for (i = team.lane; i < size; i += team.size).
struct Team {
  int64_t row, row_step;
  int lane, size;
};
__device__ __forceinline__ Team MyTeam(bool are_warps) {
  Team team = {};
  if (are_warps) {
    const int64_t warps = blockDim.x / kWarpThreads;
    team.row = blockIdx.x * warps + threadIdx.x / kWarpThreads;
    team.row_step = gridDim.x * warps;
    team.lane = static_cast<int>(threadIdx.x % kWarpThreads);
    team.size = kWarpThreads;
  } else {
    team.row = blockIdx.x;
    team.row_step = gridDim.x;
    team.lane = static_cast<int>(threadIdx.x);
    team.size = static_cast<int>(blockDim.x);
  }
  return team;
}

// Of the team's threads; each gets the result. Teams that are blocks have more than a warp.
template <class T, class Join>
__device__ __forceinline__ T TeamJoin(const Team& team, T value, Join join, T identity) {
  if (team.size == kWarpThreads) return WarpJoin(value, join);
  return BlockJoin(value, join, identity);
}
template <class T>
__device__ __forceinline__ T TeamSum(const Team& team, T value) {
  return TeamJoin(team, value, SumOf(), T(0));
}

// Numbers that have the type of x, or of what is computed with.
template <class T>
__device__ __forceinline__ Compute<T> LoadNumber(bool is_wide, const void* numbers, int64_t i) {
  return is_wide ? static_cast<const Compute<T>*>(numbers)[i]
                 : Load(static_cast<const T*>(numbers) + i);
}
template <class T>
__device__ __forceinline__ void StoreNumber(bool is_wide, void* numbers, int64_t i,
                                            Compute<T> value) {
  if (is_wide) {
    static_cast<Compute<T>*>(numbers)[i] = value;
  } else {
    Store(static_cast<T*>(numbers) + i, value);
  }
}

// kPack neighbouring elements: one, or 16 bytes, or twice that.
template <int kPack, class T>
__device__ __forceinline__ void LoadPack(const T* from, Compute<T> (&to)[kPack]) {
  if constexpr (kPack == 1) {
    to[0] = Load(from);
  } else {
    LoadFirst<T, kPack>(from, to);
  }
}
template <int kPack, class T>
__device__ __forceinline__ void StorePack(T* to, const Compute<T> (&from)[kPack]) {
  if constexpr (kPack == 1) {
    Store(to, from[0]);
  } else {
    StoreAll(to, from);
  }
}

// Elements that are loaded and stored at once, as a type.
template <int kElements>
struct PackOf {
  static constexpr int kSize = kElements;
};
// Whether rows of `size` elements may be read and written in packs, if all pointers are aligned.
inline bool FitsPacks(DType type, int64_t size) {
  const int64_t elements = type == DType::kF32 ? 4 : 8;
  return type != DType::kF64 && size % elements == 0;
}
// f(T(), PackOf<n>()) for the dtype's T; n is 1 unless `is_packed`, which FitsPacks allows.
template <class F>
Error VisitPacks(DType type, bool is_packed, F f) {
  return VisitFloating(type, [&](auto element) -> Error {
    using T = decltype(element);
    if constexpr (sizeof(T) < sizeof(double)) {
      if (is_packed) return f(element, PackOf<Pack<T>::kSize>());
    }
    return f(element, PackOf<1>());
  });
}

// To about 2 units in the last place for small |x|, with the hardware's power of two.
__device__ __forceinline__ float FastExp(float x) { return __expf(x); }
__device__ __forceinline__ double FastExp(double x) { return fn::Exp(x); }

// Reads i32 or i64.
struct IndexReader {
  const void* data;
  bool is_i64;
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

}  // namespace braid::cuda
