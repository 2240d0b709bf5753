// attention_grad of 16-bit numbers on matrix units. One kernel has tiles of queries as its own rows
// and makes dq, one has tiles of keys and makes dk and dv: weights are computed twice, and each sum
// is added up in the order of the others, so that a run repeats bit for bit.
#include "runtime/kernels/cuda/attention_units.h"

namespace braid::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

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
// gradients of the scores. `sees` says of an own row's half and a column whether that query sees
// that key, `row` has the query's numbers, `score` makes a score, in powers of two, of a product.
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
                                            int count, T* stage, OwnRows<1, kDepth>& own) {
  span.first = first;
  span.count = count;
  BeginRows<kDepth, kUnitWarps * kUnitRows>(span, stage);
  EndCopyGroup();
  AwaitCopies<0>();
  __syncthreads();
  LoadOwn<1, kDepth>(place, stage, own);
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

// A block has 64 rows of a head's queries or keys.
template <class T, int kDepth, bool kOwnQueries>
__global__ void __launch_bounds__(kUnitThreads) UnitGradientKernel(AttentionGradLaunch launch) {
  using Sizes = UnitTile<kDepth>;
  constexpr int kOwn = kUnitWarps * kUnitRows, kOthers = Sizes::kOthers;
  __shared__ Pack<T> memory[Sizes::template kPacks<T>];
  __shared__ QueryRow query_rows[2][kOthers];  // of a stage's queries, where they are the others
  T* const buffer = reinterpret_cast<T*>(memory);
  const AttentionPart& part = launch.part;
  const UnitPlace place;

  // The tiles that have most to do in a causal part come first.
  const int64_t own_rows = kOwnQueries ? part.queries : part.seen.keys;
  const int64_t own_heads = kOwnQueries ? part.heads : part.kv_heads;
  const int64_t own_tiles = (own_rows + kOwn - 1) / kOwn, tile = blockIdx.x % own_tiles;
  const int64_t first = (kOwnQueries ? own_tiles - 1 - tile : tile) * kOwn;
  const int64_t b = blockIdx.x / own_tiles / own_heads;
  const int64_t own_head = blockIdx.x / own_tiles % own_heads;
  const int64_t left = own_rows - first;
  const int rows = left < kOwn ? static_cast<int>(left) : kOwn;
  const int64_t kv_head = kOwnQueries ? KvHeadOf(part, own_head) : own_head;
  const int64_t first_head = kOwnQueries ? own_head : FirstHeadOf(part, kv_head);
  const int64_t heads = kOwnQueries ? 1 : FirstHeadOf(part, kv_head + 1) - first_head;
  const int64_t end = kOwnQueries ? SeenBy(part.seen, first + rows - 1) : part.queries;
  const int64_t begin = kOwnQueries ? 0 : FirstQueryOf(part.seen, first) / kOthers * kOthers;
  const int64_t tiles_of_head = end > begin ? (end - begin + kOthers - 1) / kOthers : 0;
  const int64_t tiles = heads * tiles_of_head;

  const auto begin_tile = [&](int64_t t) {
    if (t >= tiles) return;
    const int64_t head = first_head + t / tiles_of_head;
    const int64_t other = begin + t % tiles_of_head * kOthers;
    GradientSpans<T> others = SpansOf<T>(launch, !kOwnQueries, b, head, kv_head);
    others.first.first = others.second.first = other;
    others.first.count = others.second.count =
        end - other < kOthers ? static_cast<int>(end - other) : kOthers;
    T* const stage = buffer + t % 2 * Sizes::kStage;
    BeginRows<kDepth, kOthers>(others.first, stage);
    BeginRows<kDepth, kOthers>(others.second, stage + Sizes::kNumbers);
    if (!kOwnQueries && threadIdx.x < kOthers) {
      query_rows[t % 2][threadIdx.x] =
          ReadRow<T>(launch, b * part.heads + head, other + static_cast<int>(threadIdx.x));
    }
  };

  OwnRows<1, kDepth> own_first, own_second;
  begin_tile(0);
  const GradientSpans<T> own = SpansOf<T>(launch, kOwnQueries, b, own_head, kv_head);
  LoadOwnRows<T, kDepth>(place, own.first, first, rows, buffer + Sizes::kStage, own_first);
  LoadOwnRows<T, kDepth>(place, own.second, first, rows, buffer + Sizes::kStage, own_second);
  const int64_t own_row = first + place.warp * kUnitRows + place.row;
  QueryRow own_queries[2];
  if (kOwnQueries) {
    own_queries[0] = ReadRow<T>(launch, b * part.heads + own_head, own_row);
    own_queries[1] = ReadRow<T>(launch, b * part.heads + own_head, own_row + 8);
  }

  const float scale = static_cast<float>(part.scale);
  UnitSums<1, kDepth> sums = {}, value_sums = {};
  for (int64_t t = 0; t < tiles; ++t) {
    begin_tile(t + 1);
    EndCopyGroup();
    AwaitCopies<1>();
    __syncthreads();
    const T* const stage = buffer + t % 2 * Sizes::kStage;
    UnitSums<1, kOthers> weights, gradients;
    MultiplyTile<1, kDepth>(place, own_first, stage, weights);
    MultiplyTile<1, kDepth>(place, own_second, stage + Sizes::kNumbers, gradients);
    const int64_t head = first_head + t / tiles_of_head;
    const int64_t other = begin + t % tiles_of_head * kOthers;
    // Of own queries: how many of the tile's keys each sees; of own keys: the first query that
    // does.
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
    const auto row = [&](int half, int column) {
      return kOwnQueries ? own_queries[half] : query_rows[t % 2][column];
    };
    if (part.mask.terms == nullptr) {
      const auto score = [&](int, int, float product) { return scale * kLog2E * product; };
      ToGradients(place, scale, sees, row, score, weights[0], gradients[0]);
    } else {
      const int64_t offset = MaskOffset(part.mask, b, head, 0);
      const auto score = [&](int half, int column, float product) {
        const int64_t at = own_row + half * 8, at_other = other + column;
        const int64_t i = kOwnQueries ? at : at_other, j = kOwnQueries ? at_other : at;
        // Rows that are not there have no terms, either.
        if (i >= part.queries || j >= part.seen.keys) return 0.0f;
        return ScoreOf<T>(part, offset + i * part.mask.strides[2], j, product) * kLog2E;
      };
      ToGradients(place, scale, sees, row, score, weights[0], gradients[0]);
    }
    AddWeightedTile<1, kDepth>(place, gradients, stage, sums);
    if (!kOwnQueries) {
      AddWeightedTile<1, kDepth>(place, weights, stage + Sizes::kNumbers, value_sums);
    }
    __syncthreads();
  }

  if (kOwnQueries) {
    StoreOwnRows<T>(place, sums[0], rows, part.depth, part.q.row,
                    static_cast<T*>(launch.dq) + b * part.q.batch + own_head * part.q.head +
                        first * part.q.row);
    return;
  }
  StoreOwnRows<T>(
      place, sums[0], rows, part.depth, part.k.row,
      static_cast<T*>(launch.dk) + b * part.k.batch + kv_head * part.k.head + first * part.k.row);
  StoreOwnRows<T>(
      place, value_sums[0], rows, part.value_depth, part.v.row,
      static_cast<T*>(launch.dv) + b * part.v.batch + kv_head * part.v.head + first * part.v.row);
}

template <class T, int kDepth>
Error LaunchOf(const Queue& queue, const AttentionGradLaunch& launch) {
  constexpr int kOwn = kUnitWarps * kUnitRows;
  const AttentionPart& part = launch.part;
  const int64_t queries = TilesOf(part.queries, kOwn) * part.heads * part.batch;
  const int64_t keys = TilesOf(part.seen.keys, kOwn) * part.kv_heads * part.batch;
  const Error error = LaunchBlocks(queue, static_cast<unsigned>(queries), kUnitThreads,
                                   UnitGradientKernel<T, kDepth, true>, launch);
  if (error != kDone) return error;
  return LaunchBlocks(queue, static_cast<unsigned>(keys), kUnitThreads,
                      UnitGradientKernel<T, kDepth, false>, launch);
}

template <class T>
Error LaunchOfType(const Queue& queue, const AttentionGradLaunch& launch, bool& fits) {
  const AttentionPart& part = launch.part;
  fits = FitsUnits(part.depth) && FitsUnits(part.value_depth) &&
         IsPacked<T>(launch.q, part.q, part.depth) && IsPacked<T>(launch.dq, part.q, part.depth) &&
         IsPacked<T>(launch.k, part.k, part.depth) && IsPacked<T>(launch.dk, part.k, part.depth) &&
         IsPacked<T>(launch.v, part.v, part.value_depth) &&
         IsPacked<T>(launch.dv, part.v, part.value_depth) &&
         IsPacked<T>(launch.d_o, part.o, part.value_depth);
  if (!fits) return kDone;
  const bool is_narrow = part.depth <= kNarrowDepth && part.value_depth <= kNarrowDepth;
  return is_narrow ? LaunchOf<T, kNarrowDepth>(queue, launch)
                   : LaunchOf<T, kMostDepth>(queue, launch);
}

}  // namespace

Error LaunchUnitAttentionGrad(const Queue& queue, const AttentionGradLaunch& launch, bool& fits) {
  fits = false;
  if (launch.part.dtype == DType::kBF16) return LaunchOfType<BFloat16>(queue, launch, fits);
  if (launch.part.dtype == DType::kF16) return LaunchOfType<Float16>(queue, launch, fits);
  return kDone;
}

}  // namespace braid::cuda
