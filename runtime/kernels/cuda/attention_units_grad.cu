// attention_grad of 16-bit numbers on matrix units. One kernel has tiles of queries as its own rows
// and makes dq, one has tiles of keys and makes dk and dv: weights are computed twice, and each sum
// is added up in the order of the others, so that a run repeats bit for bit.
#include "runtime/kernels/cuda/attention_units.h"

namespace braid::cuda {
namespace {

// Of queries: logarithms of sums, in powers of two, and what weights' gradients lack.
struct QueryRow {
  float lse, delta;
};
template <class T>
__device__ __forceinline__ QueryRow ReadRow(const AttentionGradLaunch& launch, int64_t item,
                                            int64_t i) {
  // A query that is not there, or sees nothing, has no weights: 2^(score - infinity).
  const float infinity = static_cast<float>(__builtin_inf());
  if (i >= launch.part.queries) return {infinity, 0};
  const int64_t row = item * launch.part.queries + i;
  const float lse = launch.lse.is_narrow ? Load(static_cast<const T*>(launch.lse.values) + row)
                                         : static_cast<const float*>(launch.lse.values)[row];
  return {lse == -infinity ? infinity : lse * kLog2E, static_cast<const float*>(launch.delta)[row]};
}

// The products of own rows with a tile's others, and of weights' gradients, to the weights and the
// gradients of the scores. `sees` says of an own row's half and a column whether that query
// sees that key, `row` has the query's numbers, `score` makes a score, in powers of two, of a
// product.
template <int kColumns, class Sees, class Row, class Score>
__device__ __forceinline__ void ToGradients(const UnitPlace& place, float scale, Sees sees, Row row,
                                            Score score, float (&weights)[kColumns][4],
                                            float (&gradients)[kColumns][4]) {
  BRAID_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    BRAID_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int column = n * kUnitColumns + place.column + e % 2, half = e / 2;
      float weight = 0, gradient = 0;
      if (sees(half, column)) {
        const QueryRow query = row(half, column);
        weight = FastExp2(score(half, column, weights[n][e]) - query.lse);
        gradient = scale * weight * (gradients[n][e] - query.delta);
      }
      weights[n][e] = weight;
      gradients[n][e] = gradient;
    }
  }
}

// The first query that sees key j.
__device__ __forceinline__ int64_t FirstQueryOf(const KeysSeen& all, int64_t j) {
  const int64_t query = all.is_causal ? j - all.by_first + 1 : 0;
  return query > 0 ? query : 0;
}

// Which operands are a block's own rows, and which are the others: the first ones multiply to
// scores, the second ones to the weights' gradients.
template <class T>
struct GradientSpans {
  RowSpan<T> first, second;
};
template <class T>
__device__ __forceinline__ GradientSpans<T> SpansOf(const AttentionGradLaunch& launch,
                                                    bool of_queries, int64_t b, int64_t head,
                                                    int64_t kv_head) {
  const AttentionPart& part = launch.part;
  if (of_queries) {
    return {{RowsAt<T>(launch.q, part.q, b, head), 0, 0, part.depth},
            {RowsAt<T>(launch.d_o, part.o, b, head), 0, 0, part.value_depth}};
  }
  return {{RowsAt<T>(launch.k, part.k, b, kv_head), 0, 0, part.depth},
          {RowsAt<T>(launch.v, part.v, b, kv_head), 0, 0, part.value_depth}};
}

template <class T, int kDepth>
__device__ __forceinline__ void LoadOwnRows(const UnitPlace& place, RowSpan<T> span, int64_t first,
                                            int count, T* stage, OwnRows<kDepth>& own) {
  span.first = first;
  span.count = count;
  BeginRows<kDepth, kOwnRows>(span, stage);
  EndCopyGroup();
  AwaitCopies<0>();
  __syncthreads();
  LoadOwn<kDepth>(place, stage, own);
  __syncthreads();
}

template <class T, int kColumns>
__device__ __forceinline__ void StoreOwnRows(const UnitPlace& place,
                                             const float (&sums)[kColumns][4], int rows,
                                             int64_t depth, int64_t stride, T* to) {
  BRAID_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = place.warp * kUnitRows + place.row + half * 8;
    if (row < rows) StoreUnitRow<T>(place, sums, half, 1.0f, depth, to + row * stride);
  }
}

// The rows of a head's queries or keys that a block has, and what it goes through for them: tiles
// of others, of one head after another.
struct GradientBlock {
  int64_t first, b, own_head, kv_head, first_head;
  int rows;
  int64_t begin, end;  // of the others
  int64_t tiles_of_head, tiles;
  __device__ int64_t HeadOf(int64_t tile) const { return first_head + tile / tiles_of_head; }
};
template <bool kOwnQueries, int kOthers>
__device__ __forceinline__ GradientBlock MyBlock(const AttentionPart& part) {
  GradientBlock block;
  const int64_t own_rows = kOwnQueries ? part.queries : part.seen.keys;
  const int64_t own_heads = kOwnQueries ? part.heads : part.kv_heads;
  // The tiles that have most to do in a causal part come first.
  const int64_t own_tiles = (own_rows + kOwnRows - 1) / kOwnRows, tile = blockIdx.x % own_tiles;
  block.first = (kOwnQueries ? own_tiles - 1 - tile : tile) * kOwnRows;
  block.b = blockIdx.x / own_tiles / own_heads;
  block.own_head = blockIdx.x / own_tiles % own_heads;
  const int64_t left = own_rows - block.first;
  block.rows = left < kOwnRows ? static_cast<int>(left) : kOwnRows;
  block.kv_head = kOwnQueries ? KvHeadOf(part, block.own_head) : block.own_head;
  block.first_head = kOwnQueries ? block.own_head : FirstHeadOf(part, block.kv_head);
  block.begin = kOwnQueries ? 0 : FirstQueryOf(part.seen, block.first) / kOthers * kOthers;
  block.end = kOwnQueries ? SeenBy(part.seen, block.first + block.rows - 1) : part.queries;
  const int64_t others = block.end - block.begin;
  block.tiles_of_head = others > 0 ? (others + kOthers - 1) / kOthers : 0;
  const int64_t heads = kOwnQueries ? 1 : FirstHeadOf(part, block.kv_head + 1) - block.first_head;
  block.tiles = heads * block.tiles_of_head;
  return block;
}

// The thread's products of a tile to weights and gradients. `row` has the numbers of the query of
// an own row's half and a column; own rows are from `own_row` on, others from `other` on.
template <class T, bool kOwnQueries, int kColumns, class Row>
__device__ __forceinline__ void ToTileGradients(const AttentionPart& part, const UnitPlace& place,
                                                int64_t mask_offset, int64_t own_row, int64_t other,
                                                Row row, float (&weights)[kColumns][4],
                                                float (&gradients)[kColumns][4]) {
  constexpr int kOthers = kColumns * kUnitColumns;
  // Of own queries: how many of the tile's keys each sees; of own keys: the first query that does.
  int limits[2];
  BRAID_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t at = own_row + half * 8;
    limits[half] = kOwnQueries ? SeenOf(SeenBy(part.seen, at) - other, kOthers)
                               : SeenOf(FirstQueryOf(part.seen, at) - other, kOthers);
  }
  const auto sees = [&](int half, int column) {
    return kOwnQueries ? column < limits[half] : column >= limits[half];
  };
  const float scale = static_cast<float>(part.scale);
  if (part.mask.terms == nullptr) {
    const auto score = [&](int, int, float product) { return scale * kLog2E * product; };
    ToGradients(place, scale, sees, row, score, weights, gradients);
    return;
  }
  const auto score = [&](int half, int column, float product) {
    const int64_t at = own_row + half * 8, at_other = other + column;
    const int64_t i = kOwnQueries ? at : at_other, j = kOwnQueries ? at_other : at;
    // Rows that are not there have no terms, either.
    if (i >= part.queries || j >= part.seen.keys) return 0.0f;
    return ScoreOf<T>(part, mask_offset + i * part.mask.strides[2], j, product) * kLog2E;
  };
  ToGradients(place, scale, sees, row, score, weights, gradients);
}

// dq, or dk and dv.
template <class T, bool kOwnQueries, int kColumns>
__device__ __forceinline__ void StoreGradients(const AttentionGradLaunch& launch,
                                               const UnitPlace& place, const GradientBlock& block,
                                               const float (&sums)[kColumns][4],
                                               const float (&value_sums)[kColumns][4]) {
  const AttentionPart& part = launch.part;
  const auto store = [&](void* gradient, const HeadStrides& at, int64_t depth,
                         const float(&of)[kColumns][4]) {
    T* const to = static_cast<T*>(gradient) + block.b * at.batch + block.own_head * at.head;
    StoreOwnRows<T>(place, of, block.rows, depth, at.row, to + block.first * at.row);
  };
  if (kOwnQueries) return store(launch.dq, part.q, part.depth, sums);
  store(launch.dk, part.k, part.depth, sums);
  store(launch.dv, part.v, part.value_depth, value_sums);
}

template <class T, int kDepth, bool kOwnQueries>
__global__ void __launch_bounds__(kUnitThreads, 2) UnitGradientKernel(AttentionGradLaunch launch) {
  using Sizes = UnitTile<kDepth>;
  constexpr int kOthers = Sizes::kOthers;
  __shared__ Pack<T> memory[Sizes::template kPacks<T>];
  __shared__ QueryRow query_rows[2][kOthers];  // of a stage's queries, where they are the others
  T* const buffer = reinterpret_cast<T*>(memory);
  const AttentionPart& part = launch.part;
  const UnitPlace place;
  const GradientBlock block = MyBlock<kOwnQueries, kOthers>(part);

  const auto begin_tile = [&](int64_t t) {
    if (t >= block.tiles) return;
    const int64_t head = block.HeadOf(t);
    const int64_t other = block.begin + t % block.tiles_of_head * kOthers;
    const int64_t left = block.end - other;
    GradientSpans<T> others = SpansOf<T>(launch, !kOwnQueries, block.b, head, block.kv_head);
    others.first.first = others.second.first = other;
    others.first.count = others.second.count = left < kOthers ? static_cast<int>(left) : kOthers;
    T* const stage = buffer + t % 2 * Sizes::kStage;
    BeginRows<kDepth, kOthers>(others.first, stage);
    BeginRows<kDepth, kOthers>(others.second, stage + Sizes::kNumbers);
    if (!kOwnQueries && threadIdx.x < kOthers) {
      query_rows[t % 2][threadIdx.x] =
          ReadRow<T>(launch, block.b * part.heads + head, other + static_cast<int>(threadIdx.x));
    }
  };

  OwnRows<kDepth> own_first, own_second;
  begin_tile(0);
  const GradientSpans<T> own =
      SpansOf<T>(launch, kOwnQueries, block.b, block.own_head, block.kv_head);
  T* const second_stage = buffer + Sizes::kStage;
  LoadOwnRows<T, kDepth>(place, own.first, block.first, block.rows, second_stage, own_first);
  LoadOwnRows<T, kDepth>(place, own.second, block.first, block.rows, second_stage, own_second);
  const int64_t own_row = block.first + place.warp * kUnitRows + place.row;
  QueryRow own_queries[2];
  if (kOwnQueries) {
    const int64_t item = block.b * part.heads + block.own_head;
    own_queries[0] = ReadRow<T>(launch, item, own_row);
    own_queries[1] = ReadRow<T>(launch, item, own_row + 8);
  }

  UnitSums<kDepth> sums = {}, value_sums = {};
  for (int64_t t = 0; t < block.tiles; ++t) {
    begin_tile(t + 1);
    EndCopyGroup();
    AwaitCopies<1>();
    __syncthreads();
    const T* const stage = buffer + t % 2 * Sizes::kStage;
    UnitSums<kOthers> weights, gradients;
    MultiplyTile<kDepth>(place, own_first, stage, weights);
    MultiplyTile<kDepth>(place, own_second, stage + Sizes::kNumbers, gradients);
    const auto row = [&](int half, int column) {
      return kOwnQueries ? own_queries[half] : query_rows[t % 2][column];
    };
    ToTileGradients<T, kOwnQueries>(part, place, MaskOffset(part.mask, block.b, block.HeadOf(t), 0),
                                    own_row, block.begin + t % block.tiles_of_head * kOthers, row,
                                    weights, gradients);
    AddWeightedTile<kDepth>(place, gradients, stage, sums);
    if (!kOwnQueries) {
      AddWeightedTile<kDepth>(place, weights, stage + Sizes::kNumbers, value_sums);
    }
    __syncthreads();
  }
  StoreGradients<T, kOwnQueries>(launch, place, block, sums, value_sums);
}

template <class T, int kDepth>
Error LaunchOf(const Queue& queue, const AttentionGradLaunch& launch) {
  const AttentionPart& part = launch.part;
  const int64_t queries = TilesOf(part.queries, kOwnRows) * part.heads * part.batch;
  const int64_t keys = TilesOf(part.seen.keys, kOwnRows) * part.kv_heads * part.batch;
  const Error error = LaunchBlocks(queue, static_cast<unsigned>(queries), kUnitThreads,
                                   UnitGradientKernel<T, kDepth, true>, launch);
  if (error != kDone) return error;
  return LaunchBlocks(queue, static_cast<unsigned>(keys), kUnitThreads,
                      UnitGradientKernel<T, kDepth, false>, launch);
}

}  // namespace

bool FitsUnits(const AttentionGradLaunch& launch) {
  const AttentionPart& part = launch.part;
  return FitsUnits(part) && IsPackedHalf(launch.q, part.q, part.depth) &&
         IsPackedHalf(launch.dq, part.q, part.depth) &&
         IsPackedHalf(launch.k, part.k, part.depth) &&
         IsPackedHalf(launch.dk, part.k, part.depth) &&
         IsPackedHalf(launch.v, part.v, part.value_depth) &&
         IsPackedHalf(launch.dv, part.v, part.value_depth) &&
         IsPackedHalf(launch.d_o, part.o, part.value_depth);
}

Error LaunchUnitAttentionGrad(const Queue& queue, const AttentionGradLaunch& launch) {
  return VisitUnits(launch.part, [&](auto type, auto depth) {
    return LaunchOf<decltype(type), decltype(depth)::value>(queue, launch);
  });
}

}  // namespace braid::cuda
