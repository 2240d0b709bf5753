// Elements that a thread takes up together: how they are read and written, whatever type they are
// stored in. Included only by the sources of kernels.
#pragma once

#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {

// How many: 16 bytes of what is computed with, at most 4, which are still 8 bytes of a narrow type.
template <class C>
inline constexpr int kGroup = sizeof(C) == 8 ? 2 : 4;
// Where each element is read and written once: 16 bytes of a narrow type.
template <class C>
inline constexpr int kWideGroup = sizeof(C) == 4 && fn::kIsFloat<C> ? 8 : kGroup<C>;

// LoadStored and StoreStored of elements that are computed with as C: a float may be stored as bf16
// or f16.
template <class C, int n>
__device__ __forceinline__ void LoadGroup(DType type, const void* data, int64_t at, int count,
                                          C (&values)[n]) {
  if constexpr (sizeof(C) == sizeof(float) && fn::kIsFloat<C>) {
    if (type == DType::kBF16) return LoadStored<BFloat16>(data, at, count, values);
    if (type == DType::kF16) return LoadStored<Float16>(data, at, count, values);
  }
  LoadStored<C>(data, at, count, values);
}
template <class C, int n>
__device__ __forceinline__ void StoreGroup(DType type, void* data, int64_t at, int count,
                                           const C (&values)[n]) {
  if constexpr (sizeof(C) == sizeof(float) && fn::kIsFloat<C>) {
    if (type == DType::kBF16) return StoreStored<BFloat16>(data, at, count, values);
    if (type == DType::kF16) return StoreStored<Float16>(data, at, count, values);
  }
  StoreStored<C>(data, at, count, values);
}

// One element, n times.
template <class C, int n>
__device__ __forceinline__ void LoadRepeated(DType type, const void* data, int64_t at,
                                             C (&values)[n]) {
  C one;
  if constexpr (sizeof(C) == sizeof(float) && fn::kIsFloat<C>) {
    one = type == DType::kBF16  ? Load(static_cast<const BFloat16*>(data) + at)
          : type == DType::kF16 ? Load(static_cast<const Float16*>(data) + at)
                                : static_cast<const C*>(data)[at];
  } else {
    one = static_cast<const C*>(data)[at];
  }
  for (int j = 0; j < n; ++j) values[j] = one;
}

// One number of any type that scalars have.
__device__ __forceinline__ double LoadScalar(DType type, const void* data) {
  switch (type) {
    case DType::kF32:
      return *static_cast<const float*>(data);
    case DType::kF64:
      return *static_cast<const double*>(data);
    case DType::kBF16:
      return Load(static_cast<const BFloat16*>(data));
    case DType::kF16:
      return Load(static_cast<const Float16*>(data));
    case DType::kI32:
      return *static_cast<const int32_t*>(data);
    default:
      return static_cast<double>(*static_cast<const int64_t*>(data));
  }
}

}  // namespace braid::cuda
