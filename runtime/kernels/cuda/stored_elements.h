// Elements as they are stored and as they are computed with: how threads read, convert and write
// them, one by one and in groups. Also read by CUDA's compiler for programs that are compiled when
// a job is loaded (fused_text.h), for which it includes nothing but its like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/base/half.h"

#define BRAID_ISA cuda
#include "runtime/kernels/functions/element_ops.h"
#include "runtime/kernels/functions/math.h"

namespace braid::cuda {

namespace fn = braid::simd::cuda;  // the functions that CPUs use, too

// What a thread computes with: 16-bit numbers are widened.
template <class T>
struct Computed {
  using type = T;
};
template <>
struct Computed<BFloat16> {
  using type = float;
};
template <>
struct Computed<Float16> {
  using type = float;
};
template <class T>
using Compute = typename Computed<T>::type;

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class T>
__device__ __forceinline__ Compute<T> Load(const T* from) {
  if constexpr (kIsHalf<T>) {
    return Widened(*from);
  } else {
    return *from;
  }
}
template <class T>
__device__ __forceinline__ void Store(T* to, Compute<T> value) {
  if constexpr (kIsHalf<T>) {
    *to = Rounded<T>(value);
  } else {
    *to = value;
  }
}
// The same of n neighbours, which are aligned to all of their bytes up to 16.
template <class T, int n>
__device__ __forceinline__ void StoreAll(T* to, const Compute<T> (&values)[n]) {
  constexpr size_t kBytes = sizeof(T) * n;
  if constexpr (kIsHalf<T> && n % 2 == 0) {
    struct alignas(kBytes < 16 ? kBytes : 16) Pairs {
      uint32_t values[n / 2];
    } pairs;
    for (int j = 0; j < n; j += 2) {
      pairs.values[j / 2] = RoundedPair<T>(values[j], values[j + 1]);
    }
    *reinterpret_cast<Pairs*>(to) = pairs;
  } else {
    struct alignas(kBytes < 16 ? kBytes : 16) All {
      T values[n];
    } all;
    for (int j = 0; j < n; ++j) Store(&all.values[j], values[j]);
    *reinterpret_cast<All*>(to) = all;
  }
}

// Of a one-dimensional grid that loops: for (i = FirstIndex(); i < n; i += IndexStep()).
__device__ __forceinline__ int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t IndexStep() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// What a group of them is read as, in one piece.
template <class Stored, int n>
struct alignas(sizeof(Stored) * n < 16 ? sizeof(Stored) * n : 16) StoredGroup {
  Stored values[n];
};

template <class Stored, int n, class C, int all>
__device__ __forceinline__ void LoadFirst(const Stored* from, C (&values)[all]) {
  const auto group = *reinterpret_cast<const StoredGroup<Stored, n>*>(from);
  for (int j = 0; j < n; ++j) values[j] = static_cast<C>(Load(&group.values[j]));
}
template <class Stored, int n, class C, int all>
__device__ __forceinline__ void StoreFirst(Stored* to, const C (&values)[all]) {
  Compute<Stored> group[n];
  for (int j = 0; j < n; ++j) group[j] = static_cast<Compute<Stored>>(values[j]);
  StoreAll(to, group);
}

// The first `count` of the elements from `at` on. A whole group of them is aligned to its size, a
// half one to its own.
template <class Stored, class C, int n>
__device__ __forceinline__ void LoadStored(const void* data, int64_t at, int count,
                                           C (&values)[n]) {
  const Stored* from = static_cast<const Stored*>(data) + at;
  if (count == n) return LoadFirst<Stored, n>(from, values);
  if constexpr (n > 2) {
    if (count == n / 2) return LoadFirst<Stored, n / 2>(from, values);
  }
  for (int j = 0; j < n; ++j) {
    if (j < count) values[j] = static_cast<C>(Load(from + j));
  }
}
template <class Stored, class C, int n>
__device__ __forceinline__ void StoreStored(void* data, int64_t at, int count,
                                            const C (&values)[n]) {
  Stored* to = static_cast<Stored*>(data) + at;
  if (count == n) return StoreFirst<Stored, n>(to, values);
  if constexpr (n > 2) {
    if (count == n / 2) return StoreFirst<Stored, n / 2>(to, values);
  }
  for (int j = 0; j < n; ++j) {
    if (j < count) Store(to + j, static_cast<Compute<Stored>>(values[j]));
  }
}

// The nearest To; of a NaN 0.
template <class To>
__device__ __forceinline__ To Saturated(double from) {
  constexpr bool is_unsigned = !fn::kIsSigned<To>;
  constexpr To kMax = is_unsigned ? static_cast<To>(~To{0})
                                  : static_cast<To>((uint64_t{1} << (8 * sizeof(To) - 1)) - 1);
  constexpr To kMin = is_unsigned ? To{0} : static_cast<To>(-kMax - 1);
  if (from != from) return 0;
  if (from <= static_cast<double>(kMin)) return kMin;
  if (from >= static_cast<double>(kMax)) return kMax;
  return static_cast<To>(from);
}
template <class To>
__device__ __forceinline__ To Converted(double from) {
  if constexpr (fn::kIsFloat<To>) {
    return static_cast<To>(from);
  } else {
    return Saturated<To>(from);
  }
}
template <class To>
__device__ __forceinline__ To Converted(float from) {
  if constexpr (fn::kIsFloat<To>) {
    return static_cast<To>(from);
  } else {
    return Saturated<To>(from);
  }
}
template <class To>
__device__ __forceinline__ To Converted(int64_t from) {
  return static_cast<To>(from);
}
template <class To>
__device__ __forceinline__ To Converted(uint64_t from) {
  return static_cast<To>(from);
}

}  // namespace braid::cuda
