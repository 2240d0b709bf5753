// attention_grad and attention_mask_grad: the weights are computed again, tile by tile, from the
// rows' logsumexp (Dao et al., arXiv 2205.14135). Each block sums up its own rows of a gradient in
// the order of the others, so that a run repeats bit for bit.
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/attention_tile.h"
#include "runtime/kernels/cuda/attention_units.h"
#include "runtime/kernels/cuda/device_code.h"
#include "runtime/kernels/cuda/rows.h"

namespace braid::cuda {
namespace {

template <class T>
__device__ __forceinline__ Compute<T> RowAt(const AttentionRows& rows, int64_t i) {
  if (rows.is_narrow) return Load(static_cast<const T*>(rows.values) + i);
  return static_cast<const Compute<T>*>(rows.values)[i];
}

// What every weight's gradient in a row lacks: the sum of do * o, less the gradient of lse. Eight
// threads have a row.
constexpr int kRowTeam = 8, kTeamsOfWarp = 32 / kRowTeam;
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) DeltaKernel(AttentionGradLaunch launch) {
  using C = Compute<T>;
  const AttentionPart& part = launch.part;
  const int64_t rows = part.batch * part.heads * part.queries;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (blockDim.x / 32);
  const int team = static_cast<int>(threadIdx.x) % 32 / kRowTeam;
  const int lane = static_cast<int>(threadIdx.x) % kRowTeam;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  // All threads of a warp go around together: they meet.
  for (int64_t first = warp * kTeamsOfWarp; first < rows; first += warps * kTeamsOfWarp) {
    const int64_t row = first + team;
    C sum = C{0};
    if (row < rows) {
      const int64_t i = row % part.queries, item = row / part.queries;
      const int64_t at =
          item / part.heads * part.o.batch + item % part.heads * part.o.head + i * part.o.row;
      for (int64_t c = lane * kPack; c < part.value_depth; c += kRowTeam * kPack) {
        C flow[kPack], o[kPack];
        LoadPack<kPack>(static_cast<const T*>(launch.d_o) + at + c, flow);
        LoadPack<kPack>(static_cast<const T*>(launch.o) + at + c, o);
        for (int j = 0; j < kPack; ++j) sum += flow[j] * o[j];
      }
    }
    for (int mask = kRowTeam / 2; mask > 0; mask >>= 1) {
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    if (lane > 0 || row >= rows) continue;
    if (launch.dlse.values != nullptr) sum -= RowAt<T>(launch.dlse, row);
    static_cast<C*>(launch.delta)[row] = sum;
  }
}

// A tile's weights p, or the gradient of the scores: factor * p * (flow - delta), of the products
// of do with values.
template <class C>
struct WeightsOf {
  int64_t item = 0;            // batch * heads + head
  int64_t mask_offset = 0;     // of the head's query 0
  int64_t query = 0, key = 0;  // where the tile starts
  bool own_are_queries = true;
  bool is_gradient = true;
  C factor = C{1};
};
template <class T, class C>
__device__ __forceinline__ void ToWeights(const AttentionGradLaunch& launch,
                                          const TilePlace<C>& place, const WeightsOf<C>& of,
                                          const TileValues<C>& flows, TileValues<C>& values) {
  using Sizes = Tile<C>;
  const AttentionPart& part = launch.part;
  // Of the queries: lse, delta and how many keys they see.
  const auto read = [&](int64_t i, C& lse, C& delta, int64_t& seen) {
    lse = delta = C{0};
    seen = 0;
    if (i >= part.queries) return;
    const int64_t row = of.item * part.queries + i;
    lse = RowAt<T>(launch.lse, row);
    if (of.is_gradient) delta = static_cast<const C*>(launch.delta)[row];
    const bool sees_none = lse == -static_cast<C>(__builtin_inf());
    seen = sees_none ? 0 : SeenBy(part.seen, i);
  };
  C lse[Sizes::kColumns], delta[Sizes::kColumns];
  int64_t seen[Sizes::kColumns];
  if (!of.own_are_queries) {
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) {
      read(of.query + place.column + c, lse[c], delta[c], seen[c]);
    }
  }
  BRAID_UNROLL
  for (int r = 0; r < Sizes::kRows; ++r) {
    if (of.own_are_queries) {
      read(of.query + place.row + r, lse[0], delta[0], seen[0]);
      BRAID_UNROLL
      for (int c = 1; c < Sizes::kColumns; ++c) {
        lse[c] = lse[0];
        delta[c] = delta[0];
        seen[c] = seen[0];
      }
    }
    BRAID_UNROLL
    for (int c = 0; c < Sizes::kColumns; ++c) {
      const int64_t i = of.query + (of.own_are_queries ? place.row + r : place.column + c);
      const int64_t j = of.key + (of.own_are_queries ? place.column + c : place.row + r);
      C weight = C{0};
      if (j < seen[c]) {
        const int64_t offset = of.mask_offset + i * part.mask.strides[2];
        weight = fn::Exp(ScoreOf<T>(part, offset, j, values[r][c]) - lse[c]);
        if (of.is_gradient) weight = of.factor * weight * (flows[r][c] - delta[c]);
      }
      values[r][c] = weight;
    }
  }
}

// How the operands of a head can be read.
struct Packed {
  bool keys, values;  // q and k; v, o and do
};

// A gradient of which a block computes rows: that of q, of k or of v.
enum class Part { kQuery, kKey, kValue };
struct Blocks {
  int64_t tiles, chunks, heads;
  int64_t count;  // of all
};
template <class C, int kWidth>
__host__ __device__ Blocks BlocksOf(const AttentionPart& part, Part of) {
  const int64_t rows = of == Part::kQuery ? part.queries : part.seen.keys;
  const int64_t columns = of == Part::kValue ? part.value_depth : part.depth;
  Blocks blocks = {.tiles = (rows + Tile<C>::kSide - 1) / Tile<C>::kSide,
                   .chunks = (columns + kWidth - 1) / kWidth,
                   .heads = of == Part::kQuery ? part.heads : part.kv_heads};
  blocks.count = blocks.tiles * blocks.chunks * blocks.heads * part.batch;
  return blocks;
}

// dq = ds k, dk = ds^T q, dv = p^T do. A block has a tile of a head's rows of one of them and
// kWidth columns.
template <class T, int kWidth, Part of>
__global__ void __launch_bounds__(Tile<Compute<T>>::kThreads)
    GradientKernel(AttentionGradLaunch launch, Packed packed) {
  using C = Compute<T>;
  using Sizes = Tile<C>;
  using Memory = TileMemory<C, kWidth>;
  __shared__ Pack<C> memory[Memory::kPacks];
  C* const buffer = reinterpret_cast<C*>(memory);
  C* const weights = buffer + Memory::kBuffer;
  const AttentionPart& part = launch.part;

  constexpr bool kIsQuery = of == Part::kQuery, kIsValue = of == Part::kValue;
  const int64_t block = blockIdx.x;
  const Blocks blocks = BlocksOf<C, kWidth>(part, of);
  // The tiles that have most to do in a causal part come first.
  const int64_t tile = block % blocks.tiles;
  const int64_t first = (kIsQuery ? blocks.tiles - 1 - tile : tile) * Sizes::kSide;
  const int64_t at = block / blocks.tiles % blocks.chunks * kWidth;
  const int64_t item = block / blocks.tiles / blocks.chunks;
  const int64_t b = item / blocks.heads, own_head = item % blocks.heads;
  const int64_t left = (kIsQuery ? part.queries : part.seen.keys) - first;
  const int rows = left < Sizes::kSide ? static_cast<int>(left) : Sizes::kSide;
  const TilePlace<C> place(rows);

  const int64_t kv_head = kIsQuery ? KvHeadOf(part, own_head) : own_head;
  const int64_t first_head = kIsQuery ? own_head : FirstHeadOf(part, kv_head);
  const int64_t end_head = kIsQuery ? own_head + 1 : FirstHeadOf(part, kv_head + 1);
  // Queries see from some key on: those before a tile of keys' first query see none of it.
  int64_t begin = 0, end = kIsQuery ? SeenBy(part.seen, first + rows - 1) : part.queries;
  if (!kIsQuery && part.seen.is_causal) {
    const int64_t query = first - part.seen.by_first + 1;
    begin = query > 0 ? query / Sizes::kSide * Sizes::kSide : 0;
  }

  RowSpan<T> k = {RowsAt<T>(launch.k, part.k, b, kv_head), first, rows, part.depth};
  RowSpan<T> v = {RowsAt<T>(launch.v, part.v, b, kv_head), first, rows, part.value_depth};
  TileSums<C, kWidth> sums = {};
  for (int64_t head = first_head; head < end_head; ++head) {
    RowSpan<T> q = {RowsAt<T>(launch.q, part.q, b, head), first, rows, part.depth};
    RowSpan<T> flow = {RowsAt<T>(launch.d_o, part.o, b, head), first, rows, part.value_depth};
    for (int64_t other = begin; other < end; other += Sizes::kSide) {
      const int count = end - other < Sizes::kSide ? static_cast<int>(end - other) : Sizes::kSide;
      if constexpr (kIsQuery) {
        k.first = v.first = other;
        k.count = v.count = count;
      } else {
        q.first = flow.first = other;
        q.count = flow.count = count;
      }
      TileValues<C> values, flows = {};
      MultiplyRows(place, Pick(kIsQuery, q, k), Pick(kIsQuery, k, q), packed.keys, buffer, values);
      if constexpr (!kIsValue) {
        MultiplyRows(place, Pick(kIsQuery, flow, v), Pick(kIsQuery, v, flow), packed.values, buffer,
                     flows);
      }
      if (place.works) {
        ToWeights<T>(launch, place,
                     {.item = b * part.heads + head,
                      .mask_offset = MaskOffset(part.mask, b, head, 0),
                      .query = q.first,
                      .key = k.first,
                      .own_are_queries = kIsQuery,
                      .is_gradient = !kIsValue,
                      .factor = static_cast<C>(part.scale)},
                     flows, values);
      }
      StoreWeights(place, values, weights);
      AddWeighted<kWidth>(place, Pick(kIsQuery, k, Pick(kIsValue, flow, q)), at,
                          kIsValue ? packed.values : packed.keys, buffer, weights, sums);
    }
  }
  if (!place.works) return;
  // Fields one by one: a reference to one of several parameters would need them in memory.
  const HeadStrides strides = {
      .batch = kIsQuery ? part.q.batch : (kIsValue ? part.v.batch : part.k.batch),
      .head = kIsQuery ? part.q.head : (kIsValue ? part.v.head : part.k.head),
      .row = kIsQuery ? part.q.row : (kIsValue ? part.v.row : part.k.row)};
  void* const gradient = kIsQuery ? launch.dq : (kIsValue ? launch.dv : launch.dk);
  T* const to = static_cast<T*>(gradient) + b * strides.batch + own_head * strides.head;
  StoreSums<kWidth>(place, sums, to + first * strides.row, strides.row, rows, at,
                    kIsValue ? part.value_depth : part.depth);
}

// The places of a mask's gradient: an axis on which it is broadcast has one, and is summed over.
struct MaskPlaces {
  int64_t batch, heads, query_tiles, key_tiles;
};
template <class C>
MaskPlaces MaskPlacesOf(const AttentionPart& part) {
  const int64_t* strides = part.mask.strides;
  return {.batch = strides[0] == 0 ? 1 : part.batch,
          .heads = strides[1] == 0 ? 1 : part.heads,
          .query_tiles = strides[2] == 0 ? 1 : TilesOf(part.queries, Tile<C>::kSide),
          .key_tiles = strides[3] == 0 ? 1 : TilesOf(part.seen.keys, Tile<C>::kSide)};
}

struct Range {
  int64_t begin, end;
};
// Sums of a tile's own rows or others or both, where the mask is broadcast, to the gradient.
template <class T, class C>
__device__ void StoreMaskTile(const AttentionGradLaunch& launch, int64_t offset, int64_t query,
                              int64_t key, const C* tile) {
  using Sizes = Tile<C>;
  const AttentionPart& part = launch.part;
  const int64_t* strides = part.mask.strides;
  const bool sums_queries = strides[2] == 0, sums_keys = strides[3] == 0;
  const int rows = sums_queries ? 1 : Sizes::kSide, columns = sums_keys ? 1 : Sizes::kSide;
  for (int at = threadIdx.x; at < rows * columns; at += Sizes::kThreads) {
    const int row = at / columns, column = at % columns;
    if (query + row >= part.queries && !sums_queries) continue;
    if (key + column >= part.seen.keys && !sums_keys) continue;
    C sum = C{0};
    for (int r = row; r < (sums_queries ? Sizes::kSide : row + 1); ++r) {
      for (int c = column; c < (sums_keys ? Sizes::kSide : column + 1); ++c) {
        sum += tile[c * Sizes::kStride + r];
      }
    }
    Store(static_cast<T*>(launch.dmask) + offset + (query + row) * strides[2] +
              (key + column) * strides[3],
          sum);
  }
}

// A block has a tile of the mask, and adds what all that shares it has.
template <class T>
__global__ void __launch_bounds__(Tile<Compute<T>>::kThreads)
    MaskGradientKernel(AttentionGradLaunch launch, MaskPlaces places, Packed packed) {
  using C = Compute<T>;
  using Sizes = Tile<C>;
  using Memory = TileMemory<C, Sizes::kLanes * Sizes::kColumns>;
  __shared__ Pack<C> memory[Memory::kPacks];
  C* const buffer = reinterpret_cast<C*>(memory);
  C* const weights = buffer + Memory::kBuffer;
  const AttentionPart& part = launch.part;
  const int64_t* strides = part.mask.strides;
  int64_t block = blockIdx.x;
  const int64_t key_tile = block % places.key_tiles;
  block /= places.key_tiles;
  const int64_t query_tile = block % places.query_tiles;
  block /= places.query_tiles;
  const int64_t own_head = block % places.heads, own_batch = block / places.heads;
  const Range batch = strides[0] == 0 ? Range{0, part.batch} : Range{own_batch, own_batch + 1};
  const Range heads = strides[1] == 0 ? Range{0, part.heads} : Range{own_head, own_head + 1};
  const int64_t first_query = query_tile * Sizes::kSide, first_key = key_tile * Sizes::kSide;
  const int64_t end_query = strides[2] == 0 ? part.queries : first_query + 1;
  const int64_t end_key = strides[3] == 0 ? part.seen.keys : first_key + 1;

  TileValues<C> total = {};
  for (int64_t b = batch.begin; b < batch.end; ++b) {
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      const int64_t kv_head = KvHeadOf(part, head);
      RowSpan<T> q = {RowsAt<T>(launch.q, part.q, b, head), 0, 0, part.depth};
      RowSpan<T> flow = {RowsAt<T>(launch.d_o, part.o, b, head), 0, 0, part.value_depth};
      RowSpan<T> k = {RowsAt<T>(launch.k, part.k, b, kv_head), 0, 0, part.depth};
      RowSpan<T> v = {RowsAt<T>(launch.v, part.v, b, kv_head), 0, 0, part.value_depth};
      for (int64_t query = first_query; query < end_query; query += Sizes::kSide) {
        const int64_t rows = part.queries - query;
        q.first = flow.first = query;
        q.count = flow.count = rows < Sizes::kSide ? static_cast<int>(rows) : Sizes::kSide;
        const int64_t seen = SeenBy(part.seen, query + q.count - 1);
        const TilePlace<C> place(q.count);
        for (int64_t key = first_key; key < end_key && key < seen; key += Sizes::kSide) {
          k.first = v.first = key;
          k.count = v.count =
              seen - key < Sizes::kSide ? static_cast<int>(seen - key) : Sizes::kSide;
          TileValues<C> values, flows;
          MultiplyRows(place, q, k, packed.keys, buffer, values);
          MultiplyRows(place, flow, v, packed.values, buffer, flows);
          if (!place.works) continue;
          ToWeights<T>(launch, place,
                       {.item = b * part.heads + head,
                        .mask_offset = MaskOffset(part.mask, b, head, 0),
                        .query = query,
                        .key = key},
                       flows, values);
          BRAID_UNROLL
          for (int r = 0; r < Sizes::kRows; ++r) {
            BRAID_UNROLL
            for (int c = 0; c < Sizes::kColumns; ++c) total[r][c] += values[r][c];
          }
        }
      }
    }
  }
  StoreWeights(TilePlace<C>(Sizes::kSide), total, weights);
  __syncthreads();
  StoreMaskTile<T>(launch, MaskOffset(part.mask, own_batch, own_head, 0), first_query, first_key,
                   weights);
}

template <class T>
Error LaunchDelta(const Queue& queue, const AttentionGradLaunch& launch) {
  const AttentionPart& part = launch.part;
  constexpr int kRows = kThreads / kRowTeam;
  const int64_t rows = part.batch * part.heads * part.queries;
  if (rows == 0) return kDone;
  const bool is_packed = IsPacked<T>(launch.o, part.o, part.value_depth) &&
                         IsPacked<T>(launch.d_o, part.o, part.value_depth);
  return LaunchBlocks(queue, BlocksFor(queue, rows, kRows), kThreads,
                      is_packed ? DeltaKernel<T, Pack<T>::kSize> : DeltaKernel<T, 1>, launch);
}

template <class T>
Packed PackedOf(const AttentionGradLaunch& launch) {
  const AttentionPart& part = launch.part;
  return {.keys = IsPacked<T>(launch.q, part.q, part.depth) &&
                  IsPacked<T>(launch.k, part.k, part.depth),
          .values = IsPacked<T>(launch.v, part.v, part.value_depth) &&
                    IsPacked<T>(launch.d_o, part.o, part.value_depth)};
}

template <class T, int kWidth>
Error LaunchGradients(const Queue& queue, const AttentionGradLaunch& launch) {
  using C = Compute<T>;
  const Packed packed = PackedOf<T>(launch);
  const auto run = [&](Part of, void (*kernel)(AttentionGradLaunch, Packed)) {
    const int64_t blocks = BlocksOf<C, kWidth>(launch.part, of).count;
    return LaunchBlocks(queue, static_cast<unsigned>(blocks), Tile<C>::kThreads, kernel, launch,
                        packed);
  };
  Error error = run(Part::kQuery, GradientKernel<T, kWidth, Part::kQuery>);
  if (error == kDone) error = run(Part::kKey, GradientKernel<T, kWidth, Part::kKey>);
  if (error == kDone) error = run(Part::kValue, GradientKernel<T, kWidth, Part::kValue>);
  return error;
}

}  // namespace

Error LaunchAttentionGrad(const Queue& queue, const AttentionGradLaunch& launch) {
  return VisitFloating(launch.part.dtype, [&](auto type) -> Error {
    using T = decltype(type);
    const Error error = LaunchDelta<T>(queue, launch);
    if (error != kDone) return error;
    if (FitsUnits(launch)) return LaunchUnitAttentionGrad(queue, launch);
    if constexpr (sizeof(T) == sizeof(float)) {  // narrow types come here rarely
      if (launch.part.depth > 64 || launch.part.value_depth > 64) {
        return LaunchGradients<T, 128>(queue, launch);
      }
    }
    return LaunchGradients<T, 64>(queue, launch);
  });
}

Error LaunchAttentionMaskGrad(const Queue& queue, const AttentionGradLaunch& launch) {
  return VisitFloating(launch.part.dtype, [&](auto type) -> Error {
    using T = decltype(type);
    using C = Compute<T>;
    const Error error = LaunchDelta<T>(queue, launch);
    if (error != kDone) return error;
    const MaskPlaces places = MaskPlacesOf<C>(launch.part);
    const int64_t blocks = places.batch * places.heads * places.query_tiles * places.key_tiles;
    return LaunchBlocks(queue, static_cast<unsigned>(blocks), Tile<C>::kThreads,
                        MaskGradientKernel<T>, launch, places, PackedOf<T>(launch));
  });
}

}  // namespace braid::cuda
