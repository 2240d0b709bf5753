// What the sources that a CUDA compiler reads share: element types, loops over elements, sums over
// a block's threads. Before everything else comes cuda_on_card.h, or, where they are compiled for
// the host, to try them without a card, tests/support/cuda_on_host.h: its words are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "graph/dtype.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/stored_elements.h"

namespace braid::cuda {

// 16 bytes at a time.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};
// Whether a launch may read and write it so.
inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// Where element i of a walk lies in operand k.
template <int kOperands>
struct Offsets {
  int64_t at[kOperands] = {};
};
template <int kOperands>
__device__ __forceinline__ Offsets<kOperands> OffsetsOf(const Walk& walk, int64_t i) {
  Offsets<kOperands> offsets;
  for (int d = walk.rank - 1; d >= 0; --d) {
    const int64_t index = i % walk.size[d];
    i /= walk.size[d];
    for (int k = 0; k < kOperands; ++k) offsets.at[k] += index * walk.stride[k][d];
  }
  return offsets;
}

struct SumOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
// As the CPU's: a NaN stays.
struct MaxOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct MinOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

// f(join) for a launch's number of it: 0: sum, 1: max, 2: min.
template <class F>
Error VisitJoin(int32_t kind, F f) {
  if (kind == 0) return f(SumOf());
  return kind == 1 ? f(MaxOf()) : f(MinOf());
}

// Of the 32 threads of a warp, in the same order in every run; each gets the result.
template <class T, class Join>
__device__ __forceinline__ T WarpJoin(T value, Join join) {
  for (int mask = 16; mask > 0; mask >>= 1) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, mask));
  }
  return value;
}

// Of all threads of a one-dimensional block of whole warps; each gets the result. `identity` joins
// with nothing to itself. Begins and ends with a meeting of all threads.
template <class T, class Join>
__device__ __forceinline__ T BlockJoin(T value, Join join, T identity) {
  __shared__ T of_warps[32];
  value = WarpJoin(value, join);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : identity;
  value = WarpJoin(value, join);
  __syncthreads();
  return value;
}

// Notes a wrong index; `index` counts from 0.
__device__ __forceinline__ void NoteIndex(const Queue& queue, IndexName name, int64_t value,
                                          int64_t position, int64_t low, int64_t high) {
  if (queue.note == nullptr || atomicCAS(queue.is_noted, 0, 1) != 0) return;
  IndexNote& note = *queue.note;
  note.work = queue.work;
  note.name = name;
  note.value = value;
  note.position = position;
  note.low = low;
  note.high = high;
  __threadfence_system();
  note.is_set = 1;
}

// f(T()) for the dtype's T; kNoSuchType if it is none of them.
template <class F>
Error VisitFloating(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF64:
      return f(double());
    case DType::kBF16:
      return f(BFloat16());
    case DType::kF16:
      return f(Float16());
    default:
      return kNoSuchType;
  }
}
template <class F>
Error VisitIntegers(DType dtype, F f) {
  switch (dtype) {
    case DType::kI32:
      return f(int32_t());
    case DType::kI64:
      return f(int64_t());
    case DType::kU8:
    case DType::kBool:
      return f(uint8_t());
    default:
      return kNoSuchType;
  }
}
template <class F>
Error VisitType(DType dtype, F f) {
  const Error error = VisitFloating(dtype, f);
  return error == kNoSuchType ? VisitIntegers(dtype, f) : error;
}
// Those, too, that are not computed with elsewhere; coded numbers are seen as their bytes.
template <class F>
Error VisitStored(DType dtype, F f) {
  switch (dtype) {
    case DType::kI8:
      return f(int8_t());
    case DType::kI16:
      return f(int16_t());
    case DType::kU16:
      return f(uint16_t());
    case DType::kU32:
      return f(uint32_t());
    case DType::kU64:
      return f(uint64_t());
    default:
      return IsCoded(dtype) ? f(uint8_t()) : VisitType(dtype, f);
  }
}
// By the size of the elements, where they are only moved.
template <class F>
Error VisitBytes(int64_t element_bytes, F f) {
  switch (element_bytes) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    case 8:
      return f(uint64_t());
    default:
      return kNoSuchType;
  }
}

}  // namespace braid::cuda
