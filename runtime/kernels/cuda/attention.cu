// attention and cached_attention: tile by tile with a running maximum and sum of each row (Milakov
// and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135).
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/attention_tile.h"
#include "runtime/kernels/cuda/attention_units.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/positions.h"

namespace braid::cuda {
namespace {

// What each row of a thread has come to: the maximum, the thread's own part of the sum of weights.
template <class C>
struct Running {
  C maximum[Tile<C>::kRows], sum[Tile<C>::kRows];
};

// How many keys lie in the cache, if there is one.
__device__ int64_t PositionOf(const Queue& queue, const AttentionLaunch& launch) {
  const KeyValueCache& cache = launch.cache;
  if (cache.position == nullptr) return 0;
  const int64_t position = ReadPosition(cache.position, cache.position_is_i64, 0);
  const int64_t most = cache.size - launch.part.queries;
  if (position >= 0 && position <= most) return position;
  if (threadIdx.x == 0) NoteIndex(queue, IndexName::kPosition, position, 0, 0, most + 1);
  return 0;
}

// Products of the tile of queries from `first` on with keys from `key` on to weights against the
// rows' running maxima; what was summed up so far is brought to the new ones.
template <class T, class C, int kColumns>
__device__ __forceinline__ void ToWeights(const AttentionPart& part, const KeysSeen& all,
                                          const TilePlace<C>& place, int64_t mask_offset,
                                          int64_t first, int64_t key, TileValues<C>& values,
                                          Running<C>& running,
                                          C (&sums)[Tile<C>::kRows][kColumns]) {
  using Sizes = Tile<C>;
  const C infinity = static_cast<C>(__builtin_inf());
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    // The same for all threads of a warp.
    if (first + r >= part.queries) break;
    const int64_t i = first + place.row + r;
    const int64_t seen = i < part.queries ? SeenBy(all, i) : 0;
    const int64_t offset = mask_offset + i * part.mask.strides[2];
    C maximum = -infinity;
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) {
      const int64_t j = key + place.column + c;
      values[r][c] = j < seen ? ScoreOf<T>(part, offset, j, values[r][c]) : -infinity;
      maximum = MaxOf()(values[r][c], maximum);
    }
    BRAID_UNROLL
    for (int mask = Sizes::kLanes / 2; mask > 0; mask >>= 1) {
      maximum = MaxOf()(maximum, __shfl_xor_sync(0xffffffffu, maximum, mask));
    }
    const bool has_weights = maximum != -infinity;
    const C before = running.maximum[r];
    // A NaN comes through.
    if (!(maximum <= before)) {
      running.maximum[r] = maximum;
      const C correction = fn::Exp(before - maximum);
      running.sum[r] *= correction;
      BRAID_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] *= correction;
    }
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) {
      const C weight = has_weights ? fn::Exp(values[r][c] - running.maximum[r]) : C{0};
      values[r][c] = weight;
      running.sum[r] += weight;
    }
  }
}

// Divides by the rows' sums, and writes the logarithms of these.
template <class C, int kColumns>
__device__ __forceinline__ void FinishRows(const TilePlace<C>& place, int rows,
                                           const Running<C>& running, C* lse,
                                           C (&sums)[Tile<C>::kRows][kColumns]) {
  using Sizes = Tile<C>;
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    if (r >= rows) break;
    C sum = running.sum[r];
    BRAID_UNROLL
    for (int mask = Sizes::kLanes / 2; mask > 0; mask >>= 1) {
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    const C factor = sum != C{0} ? C{1} / sum : C{1};
    BRAID_UNROLL
    for (int c = 0; c < kColumns; ++c) sums[r][c] *= factor;
    if (lse != nullptr && place.column == 0 && place.row + r < rows) {
      lse[place.row + r] = running.maximum[r] + fn::Log(sum);  // -inf of a row that sees nothing
    }
  }
}

// A block has a tile of a head's queries and kWidth of the values' columns.
template <class T, int kWidth>
__global__ void __launch_bounds__(Tile<Compute<T>>::kThreads)
    AttentionKernel(AttentionLaunch launch, bool packed, Queue queue) {
  using C = Compute<T>;
  using Sizes = Tile<C>;
  using Memory = TileMemory<C, kWidth>;
  __shared__ Pack<C> memory[Memory::kPacks];
  C* const buffer = reinterpret_cast<C*>(memory);
  C* const weights = buffer + Memory::kBuffer;
  const AttentionPart& part = launch.part;
  const int64_t position = PositionOf(queue, launch);
  KeysSeen seen = part.seen;
  if (launch.cache.position != nullptr) {
    seen = {.keys = position + part.queries, .is_causal = true, .by_first = position + 1};
  }

  // The last tiles of a causal part have most to do: they come first.
  const int64_t tiles = (part.queries + Sizes::kSide - 1) / Sizes::kSide;
  const int64_t chunks = (part.value_depth + kWidth - 1) / kWidth;
  const int64_t first = (tiles - 1 - blockIdx.x % tiles) * Sizes::kSide;
  const int64_t chunk = blockIdx.x / tiles % (chunks > 1 ? chunks : 1), at = chunk * kWidth;
  const int64_t item = blockIdx.x / tiles / (chunks > 1 ? chunks : 1);
  const int64_t b = item / part.heads, head = item % part.heads, kv_head = KvHeadOf(part, head);
  const int64_t left = part.queries - first;
  const int rows = left < Sizes::kSide ? static_cast<int>(left) : Sizes::kSide;
  const TilePlace<C> place(rows);

  RowSpan<T> q = {RowsAt<T>(launch.q, part.q, b, head), first, rows, part.depth};
  RowSpan<T> k = {RowsAt<T>(launch.k, part.k, b, kv_head), 0, 0, part.depth};
  RowSpan<T> v = {RowsAt<T>(launch.v, part.v, b, kv_head), 0, 0, part.value_depth};
  if (position > 0) {
    k.of.early = RowsAt<T>(launch.cache.k, launch.cache.k_at, b, kv_head).rows;
    v.of.early = RowsAt<T>(launch.cache.v, launch.cache.v_at, b, kv_head).rows;
    k.of.early_rows = v.of.early_rows = position;
  }

  TileSums<C, kWidth> sums = {};
  Running<C> running;
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    running.maximum[r] = -static_cast<C>(__builtin_inf());
    running.sum[r] = C{0};
  }
  const int64_t end = SeenBy(seen, first + rows - 1);
  for (int64_t key = 0; key < end; key += Sizes::kSide) {
    k.first = v.first = key;
    k.count = v.count = end - key < Sizes::kSide ? static_cast<int>(end - key) : Sizes::kSide;
    TileValues<C> values;
    MultiplyRows(place, q, k, packed, buffer, values);
    if (place.works) {
      ToWeights<T>(part, seen, place, MaskOffset(part.mask, b, head, 0), first, key, values,
                   running, sums);
    }
    StoreWeights(place, values, weights);
    AddWeighted<kWidth>(place, v, at, packed, buffer, weights, sums);
  }
  if (!place.works) return;
  C* const lse = launch.lse == nullptr || chunk > 0
                     ? nullptr
                     : static_cast<C*>(launch.lse) + item * part.queries + first;
  FinishRows(place, rows, running, lse, sums);
  T* const o = static_cast<T*>(launch.o) + b * part.o.batch + head * part.o.head;
  StoreSums<kWidth>(place, sums, o + first * part.o.row, part.o.row, rows, at, part.value_depth);
}

template <class T, int kWidth>
Error LaunchTiles(const Queue& queue, const AttentionLaunch& launch) {
  using Sizes = Tile<Compute<T>>;
  const AttentionPart& part = launch.part;
  const KeyValueCache& cache = launch.cache;
  const int64_t chunks = TilesOf(part.value_depth, kWidth);
  const int64_t blocks =
      TilesOf(part.queries, Sizes::kSide) * (chunks > 1 ? chunks : 1) * part.batch * part.heads;
  const bool packed =
      IsPacked<T>(launch.q, part.q, part.depth) && IsPacked<T>(launch.k, part.k, part.depth) &&
      IsPacked<T>(launch.v, part.v, part.value_depth) &&
      (cache.position == nullptr || (IsPacked<T>(cache.k, cache.k_at, part.depth) &&
                                     IsPacked<T>(cache.v, cache.v_at, part.value_depth)));
  return LaunchBlocks(queue, static_cast<unsigned>(blocks), Sizes::kThreads,
                      AttentionKernel<T, kWidth>, launch, packed, queue);
}

Error LaunchAttention(const Queue& queue, const AttentionLaunch& launch) {
  if (FitsUnits(launch)) return LaunchUnitAttention(queue, launch);
  return VisitFloating(launch.part.dtype, [&](auto type) -> Error {
    using T = decltype(type);
    if constexpr (sizeof(T) == sizeof(float)) {  // narrow types come here rarely
      if (launch.part.value_depth > 64) return LaunchTiles<T, 128>(queue, launch);
    }
    return LaunchTiles<T, 64>(queue, launch);
  });
}

}  // namespace

AttentionTable MakeAttentionTable() {
  return {.attention = LaunchAttention,
          .attention_grad = LaunchAttentionGrad,
          .attention_mask_grad = LaunchAttentionMaskGrad,
          .write_rows = LaunchWriteRows,
          .rotary = LaunchRotary};
}

}  // namespace braid::cuda
