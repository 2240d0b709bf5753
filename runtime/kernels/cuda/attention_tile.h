// Tiles of scores, which the kernels of attention and of its gradients share: own rows (of queries,
// or of keys) by others. A block's threads lie over a tile as `kRowThreads` by `kLanes`: each has
// kRows neighbouring rows and kColumns neighbouring columns. Threads of a row lie in one warp.
#pragma once

#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {

template <class C>
struct Tile {
  static constexpr bool kIsDouble = sizeof(C) == sizeof(double);
  static constexpr int kSide = kIsDouble ? 32 : 64;
  static constexpr int kRows = kIsDouble ? 4 : 8;
  static constexpr int kColumns = 4;
  static constexpr int kLanes = kSide / kColumns;
  static constexpr int kRowThreads = kSide / kRows;
  static constexpr int kThreads = kLanes * kRowThreads;
  static constexpr int kRowsOfWarp = 32 / kLanes * kRows;
  // Operands come to shared memory in slices of so many terms of a sum.
  static constexpr int kSlice = 32;
  // Of rows of a slice, and of weights: fragments stay aligned, and banks differ.
  static constexpr int kStride = kSide + 4;
  // Of values and their like, a block has so many columns.
  template <int kWidth>
  static constexpr int kGroups = kWidth / (kLanes * kColumns);
};

// In shared memory: two slices of a product's operands, in turns with a slice of rows; and the
// weights of the tile, turned: [other, own].
template <class C, int kWidth>
struct TileMemory {
  using Sizes = Tile<C>;
  static constexpr int kOperands = 2 * Sizes::kSlice * Sizes::kStride;
  static constexpr int kRowSlice = Sizes::kSlice * kWidth;
  static constexpr int kBuffer = kOperands > kRowSlice ? kOperands : kRowSlice;
  static constexpr int kWeights = Sizes::kSide * Sizes::kStride;
  static constexpr int kPacks = (kBuffer + kWeights) / Pack<C>::kSize;
  static_assert(kPacks * sizeof(Pack<C>) <= 48 * 1024);
};

// Rows of a head's operand, of which the first ones may lie elsewhere.
template <class T>
struct HeadRows {
  const T* rows = nullptr;
  int64_t stride = 0;
  const T* early = nullptr;
  int64_t early_rows = 0;
  __device__ __forceinline__ const T* At(int64_t i) const {
    if (early != nullptr && i < early_rows) return early + i * stride;
    return rows + (i - early_rows) * stride;
  }
};
template <class T>
__device__ __forceinline__ HeadRows<T> RowsAt(const void* operand, const HeadStrides& at, int64_t b,
                                              int64_t h) {
  return {.rows = static_cast<const T*>(operand) + b * at.batch + h * at.head, .stride = at.row};
}

// Rows [first, first + count) of an operand with `depth` columns.
template <class T>
struct RowSpan {
  HeadRows<T> of;
  int64_t first = 0;
  int count = 0;
  int64_t depth = 0;
};

// By value: what is picked stays in registers. For operands without early rows.
template <class T>
__device__ __forceinline__ RowSpan<T> Pick(bool is_first, const RowSpan<T>& a,
                                           const RowSpan<T>& b) {
  return {.of = {.rows = is_first ? a.of.rows : b.of.rows,
                 .stride = is_first ? a.of.stride : b.of.stride},
          .first = is_first ? a.first : b.first,
          .count = is_first ? a.count : b.count,
          .depth = is_first ? a.depth : b.depth};
}

template <int kSize, class C>
__device__ __forceinline__ void LoadFragment(const C* from, C (&to)[kSize]) {
  constexpr int kPack = Pack<C>::kSize;
  BRAID_UNROLL
  for (int i = 0; i < kSize; i += kPack) {
    const Pack<C> pack = *reinterpret_cast<const Pack<C>*>(from + i);
    BRAID_UNROLL
    for (int e = 0; e < kPack; ++e) to[i + e] = pack.values[e];
  }
}

// Columns [at, at + kSlice) of the rows, turned: to[column * kStride + row]. Rows beyond the span
// are zeros. `packed`: rows lie such that 16 bytes can be read at once.
template <class C, class T>
__device__ __forceinline__ void LoadTurned(const RowSpan<T>& span, int64_t at, bool packed, C* to) {
  using Sizes = Tile<C>;
  constexpr int kSlice = Sizes::kSlice;
  if (packed) {
    // A warp reads 16 rows by two packs: whole sectors, and few banks meet when they are written.
    constexpr int kPack = Pack<T>::kSize, kPacks = kSlice / kPack, kNear = 16;
    for (int i = threadIdx.x; i < Sizes::kSide * kPacks; i += Sizes::kThreads) {
      const int row = i % kNear + i / (kNear * kPacks) * kNear;
      const int column = i / kNear % kPacks * kPack;
      if (at + column >= span.depth) continue;
      Pack<T> pack = {};
      if (row < span.count) {
        pack = *reinterpret_cast<const Pack<T>*>(span.of.At(span.first + row) + at + column);
      }
      BRAID_UNROLL
      for (int e = 0; e < kPack; ++e) {
        to[(column + e) * Sizes::kStride + row] = Load(&pack.values[e]);
      }
    }
    return;
  }
  for (int i = threadIdx.x; i < Sizes::kSide * kSlice; i += Sizes::kThreads) {
    const int row = i / kSlice, column = i % kSlice;
    if (at + column >= span.depth) continue;
    to[column * Sizes::kStride + row] =
        row < span.count ? Load(span.of.At(span.first + row) + at + column) : C{0};
  }
}

// Rows [begin, begin + kSlice) of the span as they lie, columns [at, at + kWidth):
// to[row * kWidth + column]. What is beyond the operand's columns is left as it is.
template <int kWidth, class C, class T>
__device__ __forceinline__ void LoadRows(const RowSpan<T>& span, int begin, int64_t at, bool packed,
                                         C* to) {
  using Sizes = Tile<C>;
  const int rows = span.count - begin < Sizes::kSlice ? span.count - begin : Sizes::kSlice;
  if (packed) {
    constexpr int kPack = Pack<T>::kSize, kPacks = kWidth / kPack;
    for (int i = threadIdx.x; i < rows * kPacks; i += Sizes::kThreads) {
      const int row = i / kPacks, column = i % kPacks * kPack;
      if (at + column >= span.depth) continue;
      const Pack<T> pack =
          *reinterpret_cast<const Pack<T>*>(span.of.At(span.first + begin + row) + at + column);
      BRAID_UNROLL
      for (int e = 0; e < kPack; ++e) to[row * kWidth + column + e] = Load(&pack.values[e]);
    }
    return;
  }
  for (int i = threadIdx.x; i < rows * kWidth; i += Sizes::kThreads) {
    const int row = i / kWidth, column = i % kWidth;
    if (at + column >= span.depth) continue;
    to[i] = Load(span.of.At(span.first + begin + row) + at + column);
  }
}

// A thread's place in a tile. Warps of which no row is in the tile take part in loads and meetings
// only.
template <class C>
struct TilePlace {
  int row, column;  // its first
  bool works;
  __device__ explicit TilePlace(int rows)
      : row(static_cast<int>(threadIdx.x) / Tile<C>::kLanes * Tile<C>::kRows),
        column(static_cast<int>(threadIdx.x) % Tile<C>::kLanes * Tile<C>::kColumns),
        works(static_cast<int>(threadIdx.x) / 32 * Tile<C>::kRowsOfWarp < rows) {}
};

template <class C>
using TileValues = C[Tile<C>::kRows][Tile<C>::kColumns];

// The products of own rows with others. Begins with a meeting if there are terms at all.
template <class C, class T>
__device__ __forceinline__ void MultiplyRows(const TilePlace<C>& place, const RowSpan<T>& own,
                                             const RowSpan<T>& other, bool packed, C* buffer,
                                             TileValues<C>& products) {
  using Sizes = Tile<C>;
  C* const others = buffer + Sizes::kSlice * Sizes::kStride;
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) products[r][c] = C{0};
  }
  for (int64_t at = 0; at < own.depth; at += Sizes::kSlice) {
    __syncthreads();
    LoadTurned(own, at, packed, buffer);
    LoadTurned(other, at, packed, others);
    __syncthreads();
    if (!place.works) continue;
    const int64_t left = own.depth - at;
    const int terms = left < Sizes::kSlice ? static_cast<int>(left) : Sizes::kSlice;
    for (int t = 0; t < terms; ++t) {
      C a[Sizes::kRows], b[Sizes::kColumns];
      LoadFragment(buffer + t * Sizes::kStride + place.row, a);
      LoadFragment(others + t * Sizes::kStride + place.column, b);
      BRAID_UNROLL
      for (int r = 0; r < Sizes::kRows; ++r) {
        BRAID_UNROLL
        for (int c = 0; c < Sizes::kColumns; ++c) products[r][c] += a[r] * b[c];
      }
    }
  }
}

// To shared memory, turned. Only the warp itself reads what it writes.
template <class C>
__device__ __forceinline__ void StoreWeights(const TilePlace<C>& place, const TileValues<C>& values,
                                             C* weights) {
  using Sizes = Tile<C>;
  constexpr int kPack = Pack<C>::kSize;
  __syncwarp();
  if (place.works) {
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) {
      C* const to = weights + (place.column + c) * Sizes::kStride + place.row;
      BRAID_UNROLL
      for (int r = 0; r < Sizes::kRows; r += kPack) {
        Pack<C> pack;
        BRAID_UNROLL
        for (int e = 0; e < kPack; ++e) pack.values[e] = values[r + e][c];
        *reinterpret_cast<Pack<C>*>(to + r) = pack;
      }
    }
  }
  __syncwarp();
}

// What a thread has of own rows by kWidth columns: group g's are at g * kLanes * kColumns plus the
// thread's column.
template <class C, int kWidth>
using TileSums = C[Tile<C>::kRows][Tile<C>::template kGroups<kWidth> * Tile<C>::kColumns];

// Adds weights times the others' rows, columns [at, at + kWidth).
template <int kWidth, class C, class T>
__device__ __forceinline__ void AddWeighted(const TilePlace<C>& place, const RowSpan<T>& others,
                                            int64_t at, bool packed, C* buffer, const C* weights,
                                            TileSums<C, kWidth>& sums) {
  using Sizes = Tile<C>;
  constexpr int kGroups = Sizes::template kGroups<kWidth>, kColumns = Sizes::kColumns;
  for (int begin = 0; begin < others.count; begin += Sizes::kSlice) {
    __syncthreads();
    LoadRows<kWidth>(others, begin, at, packed, buffer);
    __syncthreads();
    if (!place.works) continue;
    const int left = others.count - begin;
    const int terms = left < Sizes::kSlice ? left : Sizes::kSlice;
    for (int t = 0; t < terms; ++t) {
      C w[Sizes::kRows];
      LoadFragment(weights + (begin + t) * Sizes::kStride + place.row, w);
      BRAID_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        C x[kColumns];
        LoadFragment(buffer + t * kWidth + g * Sizes::kLanes * kColumns + place.column, x);
        BRAID_UNROLL
        for (int r = 0; r < Sizes::kRows; ++r) {
          BRAID_UNROLL
          for (int c = 0; c < kColumns; ++c) sums[r][g * kColumns + c] += w[r] * x[c];
        }
      }
    }
  }
}

// Writes the thread's part of own rows [first, first + count) with `depth` columns, from `at` on.
template <int kWidth, class C, class T>
__device__ __forceinline__ void StoreSums(const TilePlace<C>& place,
                                          const TileSums<C, kWidth>& sums, T* rows, int64_t stride,
                                          int count, int64_t at, int64_t depth) {
  using Sizes = Tile<C>;
  constexpr int kGroups = Sizes::template kGroups<kWidth>, kColumns = Sizes::kColumns;
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    if (place.row + r >= count) continue;
    T* const row = rows + (place.row + r) * stride;
    BRAID_UNROLL
    for (int i = 0; i < kGroups * kColumns; ++i) {
      const int64_t column =
          at + i / kColumns * (Sizes::kLanes * kColumns) + place.column + i % kColumns;
      if (column < depth) Store(row + column, sums[r][i]);
    }
  }
}

// How many keys query i sees.
__device__ __forceinline__ int64_t SeenBy(const KeysSeen& all, int64_t i) {
  if (!all.is_causal) return all.keys;
  const int64_t seen = all.by_first + i;
  return seen < 0 ? 0 : (seen < all.keys ? seen : all.keys);
}
// The head of k that a head of q reads, and the first head of q that reads a head of k.
__device__ __forceinline__ int64_t KvHeadOf(const AttentionPart& part, int64_t head) {
  return (part.first_head + head) / part.group - part.first_kv_head;
}
__device__ __forceinline__ int64_t FirstHeadOf(const AttentionPart& part, int64_t kv_head) {
  const int64_t head = (part.first_kv_head + kv_head) * part.group - part.first_head;
  return head < 0 ? 0 : (head < part.heads ? head : part.heads);
}

// The score of a product of a query, whose masks start at `offset`, with key j.
template <class T, class C>
__device__ __forceinline__ C ScoreOf(const AttentionPart& part, int64_t offset, int64_t j,
                                     C product) {
  const C score = static_cast<C>(part.scale) * product;
  if (part.mask.terms == nullptr) return score;
  const int64_t at = offset + j * part.mask.strides[3];
  if (!part.mask.is_bool) return score + Load(static_cast<const T*>(part.mask.terms) + at);
  const bool is_kept = static_cast<const uint8_t*>(part.mask.terms)[at] != 0;
  return is_kept ? score : -static_cast<C>(__builtin_inf());
}
__device__ __forceinline__ int64_t MaskOffset(const AttentionMask& mask, int64_t b, int64_t h,
                                              int64_t i) {
  return b * mask.strides[0] + h * mask.strides[1] + i * mask.strides[2];
}

inline int64_t TilesOf(int64_t n, int side) { return (n + side - 1) / side; }

// Whether rows of an operand start at multiples of 16 bytes and are a multiple of them long.
template <class T>
bool IsPacked(const void* operand, const HeadStrides& at, int64_t depth) {
  constexpr int kPack = Pack<T>::kSize;
  return IsAligned(operand) && depth % kPack == 0 && at.batch % kPack == 0 &&
         at.head % kPack == 0 && at.row % kPack == 0;
}

}  // namespace braid::cuda
