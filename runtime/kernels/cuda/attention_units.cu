// attention of 16-bit numbers on matrix units.
#include "runtime/kernels/cuda/attention_units.h"

namespace braid::cuda {
namespace {

// What one of the thread's rows has come to: the maximum, in powers of two, and the thread's own
// part of the sum of weights.
struct UnitRow {
  float maximum, sum;
};

// The scores of a row's products, in powers of two, which `score` makes of a key in the tile and
// its product. The tile's first `seen` keys are seen.
template <int kColumns, class Score>
__device__ __forceinline__ void ToScores(const UnitPlace& place, int seen, int half, Score score,
                                         float (&values)[kColumns][4]) {
  BRAID_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    BRAID_UNROLL
    for (int e = 0; e < 2; ++e) {
      float& value = values[n][2 * half + e];
      const int j = n * kUnitColumns + place.column + e;
      value = j < seen ? score(j, value) : -static_cast<float>(__builtin_inf());
    }
  }
}

// Scores, `factor` times the values, to weights against the row's running maximum; what was summed
// up so far is brought to the new one. The factor is positive.
template <int kColumns, int kSums>
__device__ __forceinline__ void ToUnitWeights(int half, float factor, float (&values)[kColumns][4],
                                              UnitRow& row, float (&sums)[kSums][4]) {
  float maximum = -static_cast<float>(__builtin_inf());
  BRAID_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    BRAID_UNROLL
    for (int e = 0; e < 2; ++e) maximum = fmaxf(maximum, values[n][2 * half + e]);
  }
  BRAID_UNROLL
  for (int mask = 1; mask <= 2; mask <<= 1) {
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, mask));
  }
  maximum = fmaxf(maximum * factor, row.maximum);
  // A row that sees nothing so far has no weights.
  const float against = maximum == -static_cast<float>(__builtin_inf()) ? 0.0f : maximum;
  const float correction = FastExp2(row.maximum - against);
  row.maximum = maximum;
  row.sum *= correction;
  BRAID_UNROLL
  for (int n = 0; n < kSums; ++n) {
    sums[n][2 * half] *= correction;
    sums[n][2 * half + 1] *= correction;
  }
  BRAID_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    BRAID_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float weight = FastExp2(values[n][2 * half + e] * factor - against);
      values[n][2 * half + e] = weight;
      row.sum += weight;
    }
  }
}

// The products of the block's queries, from `first` on, with the keys from `key` on to weights.
template <class T, int kColumns, int kSums>
__device__ __forceinline__ void ToTileWeights(const AttentionPart& part, const UnitPlace& place,
                                              int64_t mask_offset, int64_t first, int64_t key,
                                              float (&values)[kColumns][4], UnitRow (&running)[2],
                                              float (&sums)[kSums][4]) {
  constexpr int kOthers = kColumns * kUnitColumns;
  const float scale = static_cast<float>(part.scale) * kLog2E;
  const bool all_see_all =
      part.mask.terms == nullptr && scale > 0 && key + kOthers <= SeenBy(part.seen, first);
  BRAID_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (all_see_all) {
      ToUnitWeights(half, scale, values, running[half], sums);
      continue;
    }
    const int64_t i = first + place.warp * kUnitRows + place.row + half * 8;
    const int seen = SeenOf(i < part.queries ? SeenBy(part.seen, i) - key : 0, kOthers);
    if (part.mask.terms == nullptr) {
      const auto score = [&](int, float product) { return product * scale; };
      ToScores(place, seen, half, score, values);
    } else {
      const int64_t offset = mask_offset + i * part.mask.strides[2] + key * part.mask.strides[3];
      const auto score = [&](int j, float product) {
        return ScoreOf<T>(part, offset, j, product) * kLog2E;
      };
      ToScores(place, seen, half, score, values);
    }
    ToUnitWeights(half, 1.0f, values, running[half], sums);
  }
}

// Divides by the rows' sums, and writes the logarithms of these.
template <class T, int kSums>
__device__ __forceinline__ void FinishUnitRows(const AttentionLaunch& launch,
                                               const UnitPlace& place, int64_t item, int64_t first,
                                               const UnitRow (&running)[2],
                                               const float (&sums)[kSums][4]) {
  const AttentionPart& part = launch.part;
  T* const o = static_cast<T*>(launch.o) + item / part.heads * part.o.batch +
               item % part.heads * part.o.head;
  float* const lse = static_cast<float*>(launch.lse);
  BRAID_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = running[half].sum;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int64_t i = first + place.warp * kUnitRows + place.row + half * 8;
    if (i >= part.queries) continue;
    StoreUnitRow<T>(place, sums, half, sum != 0 ? 1 / sum : 1.0f, part.value_depth,
                    o + i * part.o.row);
    if (lse != nullptr && place.column == 0) {
      // Minus infinity of a row that sees nothing.
      lse[item * part.queries + i] = running[half].maximum * kLn2 + fn::Log(sum);
    }
  }
}

// A block has a tile of a head's queries. Four blocks at a time hide more of each other's waits
// than wider tiles of own rows save.
template <class T, int kDepth>
__global__ void __launch_bounds__(kUnitThreads, kDepth == kNarrowDepth ? 4 : 3)
    UnitAttentionKernel(AttentionLaunch launch) {
  using Sizes = UnitTile<kDepth>;
  constexpr int kOthers = Sizes::kOthers;
  __shared__ Pack<T> memory[Sizes::template kPacks<T>];
  T* const buffer = reinterpret_cast<T*>(memory);
  const AttentionPart& part = launch.part;
  const UnitPlace place;

  // The last tiles of a causal part have most to do: they come first.
  const int64_t tiles = (part.queries + kOwnRows - 1) / kOwnRows;
  const int64_t first = (tiles - 1 - blockIdx.x % tiles) * kOwnRows, item = blockIdx.x / tiles;
  const int64_t b = item / part.heads, head = item % part.heads, kv_head = KvHeadOf(part, head);
  const int64_t left = part.queries - first;
  const int rows = left < kOwnRows ? static_cast<int>(left) : kOwnRows;
  const RowSpan<T> q = {RowsAt<T>(launch.q, part.q, b, head), first, rows, part.depth};
  RowSpan<T> k = {RowsAt<T>(launch.k, part.k, b, kv_head), 0, 0, part.depth};
  RowSpan<T> v = {RowsAt<T>(launch.v, part.v, b, kv_head), 0, 0, part.value_depth};
  const int64_t end = SeenBy(part.seen, first + rows - 1);
  const auto begin_tile = [&](int64_t key) {
    if (key >= end) return;
    k.first = v.first = key;
    k.count = v.count = end - key < kOthers ? static_cast<int>(end - key) : kOthers;
    T* const stage = buffer + key / kOthers % 2 * Sizes::kStage;
    BeginRows<kDepth, kOthers>(k, stage);
    BeginRows<kDepth, kOthers>(v, stage + Sizes::kNumbers);
  };

  // The queries stay in registers; they come by way of the second stage.
  OwnRows<kDepth> own;
  begin_tile(0);
  BeginRows<kDepth, kOwnRows>(q, buffer + Sizes::kStage);
  EndCopyGroup();
  AwaitCopies<0>();
  __syncthreads();
  LoadOwn<kDepth>(place, buffer + Sizes::kStage, own);
  __syncthreads();

  UnitSums<kDepth> sums = {};
  UnitRow running[2];
  running[0] = running[1] = {-static_cast<float>(__builtin_inf()), 0.0f};
  for (int64_t key = 0; key < end; key += kOthers) {
    begin_tile(key + kOthers);
    EndCopyGroup();
    AwaitCopies<1>();
    __syncthreads();
    const T* const stage = buffer + key / kOthers % 2 * Sizes::kStage;
    UnitSums<kOthers> values;
    MultiplyTile<kDepth>(place, own, stage, values);
    ToTileWeights<T>(part, place, MaskOffset(part.mask, b, head, 0), first, key, values, running,
                     sums);
    AddWeightedTile<kDepth>(place, values, stage + Sizes::kNumbers, sums);
    __syncthreads();
  }
  FinishUnitRows<T>(launch, place, item, first, running, sums);
}

template <class T, int kDepth>
Error LaunchOf(const Queue& queue, const AttentionLaunch& launch) {
  const AttentionPart& part = launch.part;
  const int64_t blocks = TilesOf(part.queries, kOwnRows) * part.batch * part.heads;
  return LaunchBlocks(queue, static_cast<unsigned>(blocks), kUnitThreads,
                      UnitAttentionKernel<T, kDepth>, launch);
}

}  // namespace

bool FitsUnits(const AttentionLaunch& launch) {
  const AttentionPart& part = launch.part;
  return FitsUnits(part) && launch.cache.position == nullptr &&
         IsPackedHalf(launch.q, part.q, part.depth) && IsPackedHalf(launch.k, part.k, part.depth) &&
         IsPackedHalf(launch.v, part.v, part.value_depth) &&
         IsPackedHalf(launch.o, part.o, part.value_depth);
}

Error LaunchUnitAttention(const Queue& queue, const AttentionLaunch& launch) {
  return VisitUnits(launch.part, [&](auto type, auto depth) {
    return LaunchOf<decltype(type), decltype(depth)::value>(queue, launch);
  });
}

}  // namespace braid::cuda
