// What a card has instructions of its own for: matrix units, copies to shared memory, conversions,
// powers of two. In PTX, for compute capability 8.0. Part of cuda_on_card.h; its twin is
// tests/support/instructions_on_host.h, which has no Exp: there functions/math.h's own is used.
#pragma once

#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/kernels/cuda/constants.h"

#define BRAID_INLINE __device__ static __forceinline__
// Before a loop over arrays that are to stay in registers.
#define BRAID_UNROLL _Pragma("unroll")
#define BRAID_UNROLL_BY_4 _Pragma("unroll 4")
// functions/math.h's of a float.
#define BRAID_EXP braid::cuda::Exp

namespace braid::cuda {

// The value, rounded: what is computed of it is not made one instruction with what made it.
__device__ __forceinline__ float Kept(float value) {
  asm("" : "+f"(value));
  return value;
}
__device__ __forceinline__ double Kept(double value) {
  asm("" : "+d"(value));
  return value;
}

// c += a b of 16-bit numbers, over the threads of a warp: a has 16 rows of 16, b 16 of 8. Thread
// 4 g + t has, in this order: of a in row g, then g + 8, columns 2 t and 2 t + 1, then these of
// columns 2 t + 8 and + 9; of b column g, rows 2 t and 2 t + 1, then 2 t + 8 and + 9; of c columns
// 2 t and 2 t + 1 of row g, then of row g + 8. Pairs have the lower index in the lower half.
template <class T>
__device__ __forceinline__ void MultiplyOnUnit(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                               float (&c)[4]);
template <>
__device__ __forceinline__ void MultiplyOnUnit<BFloat16>(const uint32_t (&a)[4], uint32_t b0,
                                                         uint32_t b1, float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void MultiplyOnUnit<Float16>(const uint32_t (&a)[4], uint32_t b0,
                                                        uint32_t b1, float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers, rounded, as an operand's pair.
template <class T>
__device__ __forceinline__ uint32_t RoundedPair(float low, float high);
template <>
__device__ __forceinline__ uint32_t RoundedPair<BFloat16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ uint32_t RoundedPair<Float16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <class T>
__device__ __forceinline__ T Rounded(float value) {
  return T::FromBits(static_cast<uint16_t>(RoundedPair<T>(value, 0.0f)));
}
__device__ __forceinline__ float Widened(Float16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
__device__ __forceinline__ float Widened(BFloat16 value) { return static_cast<float>(value); }

// Four squares of 8 rows of 8 numbers in shared memory: thread 8 i + r says where row r of square i
// starts (16 bytes), and thread 4 g + t gets columns 2 t and 2 t + 1 of row g of each.
__device__ __forceinline__ void LoadSquares(const void* row, uint32_t (&to)[4]) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
// The same, transposed: rows 2 t and 2 t + 1 of column g.
__device__ __forceinline__ void LoadSquaresTurned(const void* row, uint32_t (&to)[4]) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

// 16 bytes to shared memory, while the thread goes on; zeros if there is nothing to copy. `from`
// is an address that may be read either way.
__device__ __forceinline__ void BeginCopy(void* shared, const void* from, bool is_there) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t bytes = is_there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// What the thread began since the last call becomes a group of copies.
__device__ __forceinline__ void EndCopyGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kLeft of the thread's groups, the last ones, are under way.
template <int kLeft>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// 2^x, to about 2 units in the last place; what is less than 2^-126 is 0.
__device__ __forceinline__ float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// e^x, to a few units in the last place: of x / log 2 in two parts, since the first one's rounding
// would count as often as it is large.
__device__ __forceinline__ float Exp(float x) {
  constexpr float kLog2ERest = 1.92596299e-8f;  // that kLog2E lacks
  // Beyond these bounds the result is infinity or 0; the comparisons let NaN through.
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float power = x * kLog2E;
  const float rest = __builtin_fmaf(x, kLog2E, -power) + x * kLog2ERest;
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(power));
  return y * (1.0f + rest * kLn2);
}

}  // namespace braid::cuda
