// Tiles of attention for a card's matrix units: operands of 16 bits, products added up in f32. A
// block's warps have 16 own rows (of queries, or of keys) each, and the tile's others all. What a
// thread has of a product is what MultiplyOnUnit says of c; rounded to pairs, it is the first
// operand of the next product as it stands (Dao, arXiv 2307.08691).
#pragma once

#include <type_traits>

#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/attention_tile.h"
#include "runtime/kernels/cuda/constants.h"
#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {

inline constexpr int kUnitRows = 16;      // of a product on a matrix unit
inline constexpr int kUnitColumns = 8;    // of one
inline constexpr int kUnitDepth = 16;     // terms of its sums
inline constexpr int kUnitThreads = 128;  // of a block
inline constexpr int kOwnRows = kUnitThreads / 32 * kUnitRows;
inline constexpr int kNarrowDepth = 64, kMostDepth = 128;  // columns that tiles are made for

// Of operands with up to kDepth columns. Two stages of two tiles fit in 48 KiB: one is copied while
// the other is used.
template <int kDepth>
struct UnitTile {
  static constexpr int kOthers = kDepth == kNarrowDepth ? 64 : 32;
  static constexpr int kStride = kDepth + 8;  // of rows: those of a square lie in different banks
  static constexpr int kNumbers = kOthers * kStride;
  static constexpr int kStage = 2 * kNumbers;
  static constexpr int kSteps = kDepth / kUnitDepth;
  template <class T>
  static constexpr int kPacks = 2 * kStage / Pack<T>::kSize;
};

// Own rows as first operands of products, and what products come to.
template <int kDepth>
using OwnRows = uint32_t[UnitTile<kDepth>::kSteps][4];
template <int kColumns>
using UnitSums = float[kColumns / kUnitColumns][4];

// Where the thread's numbers lie: see MultiplyOnUnit.
struct UnitPlace {
  int warp, lane, row, column;
  __device__ UnitPlace()
      : warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        row(lane / 4),
        column(lane % 4 * 2) {}
};

// How many of a tile's keys are seen if `seen` are from its first one on.
__device__ __forceinline__ int SeenOf(int64_t seen, int keys) {
  return seen < 0 ? 0 : (seen < keys ? static_cast<int>(seen) : keys);
}

// Begins to copy the span's rows, at most kRows, to rows of kStride numbers. Rows and columns that
// it does not have are zeros.
template <int kDepth, int kRows, class T>
__device__ __forceinline__ void BeginRows(const RowSpan<T>& span, T* to) {
  constexpr int kPack = Pack<T>::kSize, kPacks = kDepth / kPack, kAtOnce = kUnitThreads / kPacks;
  const int column = static_cast<int>(threadIdx.x) % kPacks * kPack;
  const int first = static_cast<int>(threadIdx.x) / kPacks;
  const T* from = span.of.rows + (span.first + first) * span.of.stride + column;
  const int rows = column < span.depth ? span.count : 0;
  BRAID_UNROLL
  for (int row = first; row < kRows; row += kAtOnce) {
    const bool is_there = row < rows;
    BeginCopy(to + row * UnitTile<kDepth>::kStride + column, is_there ? from : span.of.rows,
              is_there);
    from += kAtOnce * span.of.stride;
  }
}

// The warp's own rows, of a tile in shared memory.
template <int kDepth, class T>
__device__ __forceinline__ void LoadOwn(const UnitPlace& place, const T* tile,
                                        OwnRows<kDepth>& own) {
  using Sizes = UnitTile<kDepth>;
  const int first = place.warp * kUnitRows + place.lane % 16;
  const T* const row = tile + first * Sizes::kStride + place.lane / 16 * 8;
  BRAID_UNROLL
  for (int step = 0; step < Sizes::kSteps; ++step) LoadSquares(row + step * kUnitDepth, own[step]);
}

// The products of own rows with the tile's others.
template <int kDepth, class T>
__device__ __forceinline__ void MultiplyTile(const UnitPlace& place, const OwnRows<kDepth>& own,
                                             const T* others,
                                             UnitSums<UnitTile<kDepth>::kOthers>& values) {
  using Sizes = UnitTile<kDepth>;
  const int first = place.lane / 16 * 8 + place.lane % 8;
  const T* const row = others + first * Sizes::kStride + place.lane / 8 % 2 * 8;
  BRAID_UNROLL
  for (int n = 0; n < Sizes::kOthers / kUnitColumns; ++n) {
    BRAID_UNROLL
    for (int e = 0; e < 4; ++e) values[n][e] = 0;
  }
  BRAID_UNROLL
  for (int step = 0; step < Sizes::kSteps; ++step) {
    BRAID_UNROLL
    for (int pair = 0; pair < Sizes::kOthers / 16; ++pair) {
      uint32_t b[4];
      LoadSquares(row + pair * 16 * Sizes::kStride + step * kUnitDepth, b);
      MultiplyOnUnit<T>(own[step], b[0], b[1], values[2 * pair]);
      MultiplyOnUnit<T>(own[step], b[2], b[3], values[2 * pair + 1]);
    }
  }
}

// Adds weights, rounded, times the tile's others.
template <int kDepth, class T>
__device__ __forceinline__ void AddWeightedTile(const UnitPlace& place,
                                                const UnitSums<UnitTile<kDepth>::kOthers>& weights,
                                                const T* others, UnitSums<kDepth>& sums) {
  using Sizes = UnitTile<kDepth>;
  const int first = place.lane / 8 % 2 * 8 + place.lane % 8;
  const T* const row = others + first * Sizes::kStride + place.lane / 16 * 8;
  BRAID_UNROLL
  for (int step = 0; step < Sizes::kOthers / kUnitDepth; ++step) {
    uint32_t a[4];
    BRAID_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float(&of)[4] = weights[2 * step + i / 2];
      a[i] = RoundedPair<T>(of[i % 2 * 2], of[i % 2 * 2 + 1]);
    }
    BRAID_UNROLL
    for (int pair = 0; pair < kDepth / 16; ++pair) {
      uint32_t b[4];
      LoadSquaresTurned(row + step * kUnitDepth * Sizes::kStride + pair * 16, b);
      MultiplyOnUnit<T>(a, b[0], b[1], sums[2 * pair]);
      MultiplyOnUnit<T>(a, b[2], b[3], sums[2 * pair + 1]);
    }
  }
}

// Writes the thread's part of one of its rows; the row's columns are a multiple of a square's.
template <class T, int kColumns>
__device__ __forceinline__ void StoreUnitRow(const UnitPlace& place,
                                             const float (&sums)[kColumns][4], int half,
                                             float factor, int64_t depth, T* row) {
  BRAID_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    const int column = n * kUnitColumns + place.column;
    if (column >= depth) break;
    *reinterpret_cast<uint32_t*>(row + column) =
        RoundedPair<T>(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
  }
}

// Whether the part is of 16-bit numbers in at most kMostDepth columns.
inline bool FitsUnits(const AttentionPart& part) {
  const bool is_half = part.dtype == DType::kBF16 || part.dtype == DType::kF16;
  return is_half && part.depth > 0 && part.depth <= kMostDepth && part.value_depth > 0 &&
         part.value_depth <= kMostDepth;
}
// IsPacked, which is alike for both types.
inline bool IsPackedHalf(const void* operand, const HeadStrides& at, int64_t depth) {
  return IsPacked<BFloat16>(operand, at, depth);
}
// f(T(), depth) for the type and the tiles of a part that fits.
template <class F>
Error VisitUnits(const AttentionPart& part, F f) {
  const auto visit = [&](auto type) -> Error {
    const bool is_narrow = part.depth <= kNarrowDepth && part.value_depth <= kNarrowDepth;
    if (is_narrow) return f(type, std::integral_constant<int, kNarrowDepth>());
    return f(type, std::integral_constant<int, kMostDepth>());
  };
  return part.dtype == DType::kBF16 ? visit(BFloat16()) : visit(Float16());
}

// The kernels that use matrix units, for launches that they fit: whose operands are packed, too.
bool FitsUnits(const AttentionLaunch& launch);
bool FitsUnits(const AttentionGradLaunch& launch);
Error LaunchUnitAttention(const Queue& queue, const AttentionLaunch& launch);
Error LaunchUnitAttentionGrad(const Queue& queue, const AttentionGradLaunch& launch);

}  // namespace braid::cuda
