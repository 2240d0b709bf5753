// attention: tile by tile with a running maximum and sum of each row (Milakov and Gimelshein,
// arXiv 1805.02867; Dao et al., arXiv 2205.14135), so that memory does not grow with the square of
// the sequence.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/attention_tiles.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/product_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

template <class T>
class AttentionForward {
 public:
  AttentionForward(const KernelSpec& spec, bool is_masked)
      : shape_(spec, is_masked),
        threads_(spec.threads),
        narrow_(shape_.has_many_queries() ? NarrowProductsOf(spec) : nullptr),
        block_rows_(narrow_ != nullptr ? kNarrowBlockRows : kBlockRows),
        columns_(
            TileColumns((shape_.depth + shape_.value_depth + kTileRows) * sizeof(T), shape_.keys)),
        stride_(simd::TilePadded(columns_)),
        transposes_(shape_.queries >= kBlockRows && narrow_ == nullptr),
        scratch_(threads_,
                 block_rows_ * stride_ + 2 * kRows + (transposes_ ? shape_.depth * stride_ : 0)) {
    if (narrow_ == nullptr) return;
    scratch_.AddPacked(simd::TileElements(columns_, shape_.depth) +
                       simd::TileElements(shape_.value_depth, columns_) +
                       simd::TileElements(block_rows_, std::max(columns_, shape_.depth)));
  }

  KernelMemory memory() const { return scratch_.memory(); }
  void Allocate() { scratch_.Allocate(); }

  absl::Status operator()(const KernelRun& run) {
    BRAID_ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    ForEachItem(shape_.batch * shape_.heads, threads_, [&](int64_t item, int thread) {
      const int64_t head = item % shape_.heads;
      const HeadAt at = {item / shape_.heads, head, shape_.KvHeadOf(place, head)};
      const Scratch scratch = ScratchOf(thread);
      const simd::TileScope tiles(narrow_);
      for (int64_t i = 0; i < shape_.queries; i += kRows) RunRows(run, place, at, i, scratch);
    });
    return absl::OkStatus();
  }

 private:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  // Queries that share a tile of transposed keys: so many that transposing costs little.
  static constexpr int64_t kRows = 4 * kTileRows;

  // Of one thread: a block's scores, the rows' maxima and sums, the transposed keys of a tile.
  // Or, packed for products in bf16: the keys and values of a tile, a block of rows.
  struct Scratch {
    T *scores, *maxima, *sums, *keys;
    uint16_t *packed_keys, *packed_values, *packed_rows;
  };
  Scratch ScratchOf(int thread) {
    T* scores = scratch_.Of(thread);
    T* maxima = scores + block_rows_ * stride_;
    const int64_t keys = simd::TileElements(columns_, shape_.depth);
    const int64_t values = simd::TileElements(shape_.value_depth, columns_);
    Scratch scratch = {
        .scores = scores, .maxima = maxima, .sums = maxima + kRows, .keys = maxima + 2 * kRows};
    if (narrow_ == nullptr) return scratch;
    scratch.packed_keys = scratch_.PackedOf(thread);
    scratch.packed_values = scratch.packed_keys + keys;
    scratch.packed_rows = scratch.packed_values + values;
    return scratch;
  }

  // The queries from `first` on, up to kRows of them.
  void RunRows(const KernelRun& run, const AttentionShape::Place& place, const HeadAt& at,
               int64_t first, const Scratch& scratch) const {
    const int64_t rows = std::min(kRows, shape_.queries - first);
    std::fill_n(scratch.maxima, rows, -kInfinity);
    std::fill_n(scratch.sums, rows, T{0});
    const int64_t seen_by_last = shape_.Seen(place, first + rows - 1);
    for (int64_t j = 0; j == 0 || j < seen_by_last; j += columns_) {
      // A single tile stays from the head's first queries on.
      if (first == 0 || columns_ < shape_.keys) PrepareKeys(run, at, j, scratch);
      for (int64_t row = 0; row < rows; row += block_rows_) {
        RunBlock(run, place, at, {first, row, std::min(rows, row + block_rows_), j}, scratch);
      }
    }
    T* o = Output<T>(run, 0) + shape_.o.At(at.batch, at.head, first);
    T* lse = Output<T>(run, 1) + (at.batch * shape_.heads + at.head) * shape_.queries + first;
    for (int64_t row = 0; row < rows; ++row) {
      const T sum = scratch.sums[row];
      if (sum != 0) Scale(o + row * shape_.o.row, 1 / sum);
      lse[row] = scratch.maxima[row] + std::log(sum);  // -inf of a row that sees nothing
    }
  }

  // The tile of keys from j on, as products want it.
  void PrepareKeys(const KernelRun& run, const HeadAt& at, int64_t j,
                   const Scratch& scratch) const {
    const T* k = Input<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, j);
    const int64_t keys = std::min(columns_, shape_.keys - j);
    if (transposes_) {
      product_loops_.transpose(k, shape_.k.row, keys, shape_.depth, scratch.keys, stride_);
    }
    if constexpr (sizeof(T) == sizeof(float)) {
      if (narrow_ == nullptr) return;
      const T* v = Input<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, j);
      narrow_->pack.b_transposed(k, shape_.k.row, keys, shape_.depth, scratch.packed_keys);
      narrow_->pack.b(v, shape_.v.row, shape_.value_depth, keys, scratch.packed_values);
    }
  }

  // Rows [begin, end) of those from query `first` on, and the tile of keys from j on.
  struct Block {
    int64_t first, begin, end, j;
  };
  void RunBlock(const KernelRun& run, const AttentionShape::Place& place, const HeadAt& at,
                const Block& block, const Scratch& scratch) const {
    const int64_t query = block.first + block.begin, rows = block.end - block.begin, j = block.j;
    const int64_t n = std::clamp<int64_t>(shape_.Seen(place, query + rows - 1) - j, 0,
                                          std::min(columns_, shape_.keys - j));
    if (n == 0 && j > 0) return;
    T* o = Output<T>(run, 0) + shape_.o.At(at.batch, at.head, query);
    ComputeScores(run, at, query, rows, j, n, scratch);
    const void* mask = shape_.mask.input < 0 ? nullptr : run.inputs[shape_.mask.input];
    for (int64_t row = 0; row < rows; ++row) {
      T* weights = scratch.scores + row * stride_;
      const int64_t seen = std::clamp<int64_t>(shape_.Seen(place, query + row) - j, 0, n);
      const T scale = ApplyMask(shape_, mask, at, query + row, j, weights, seen);
      const int64_t padded = PadScores(weights, seen, scale);
      ToWeights(weights, padded, scale, scratch.maxima[block.begin + row],
                scratch.sums[block.begin + row], j == 0 ? nullptr : o + row * shape_.o.row);
      if (padded < n) std::fill(weights + padded, weights + n, T{0});
    }
    AddValues(run, at, rows, j, n, scratch, o);
  }

  // The weights of a block's rows times the values of n keys.
  void AddValues(const KernelRun& run, const HeadAt& at, int64_t rows, int64_t j, int64_t n,
                 const Scratch& scratch, T* o) const {
    const T* v = Input<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, j);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (narrow_ != nullptr) {
        narrow_->pack.a(scratch.scores, stride_, rows, n, scratch.packed_rows);
        narrow_->multiply({.m = rows,
                           .n = shape_.value_depth,
                           .k = n,
                           .a = scratch.packed_rows,
                           .b = scratch.packed_values,
                           .b_terms = std::min(columns_, shape_.keys - j),
                           .c = o,
                           .c_row = shape_.o.row,
                           .adds = j > 0});
        return;
      }
    }
    product_loops_.small_product({.rows = rows,
                                  .n = shape_.value_depth,
                                  .k = n,
                                  .a = scratch.scores,
                                  .a_row = stride_,
                                  .a_step = 1,
                                  .b = v,
                                  .b_row = shape_.v.row,
                                  .c = o,
                                  .c_row = shape_.o.row,
                                  .adds = j > 0});
  }

  // Of `rows` queries with n keys. A few queries do not pay for transposing all keys.
  void ComputeScores(const KernelRun& run, const HeadAt& at, int64_t query, int64_t rows, int64_t j,
                     int64_t n, const Scratch& scratch) const {
    const T* q = Input<T>(run, 0) + shape_.q.At(at.batch, at.head, query);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (narrow_ != nullptr) {
        narrow_->pack.a(q, shape_.q.row, rows, shape_.depth, scratch.packed_rows);
        // Whole tiles: there is room for them.
        narrow_->multiply({.m = block_rows_,
                           .n = simd::TilePadded(n),
                           .k = shape_.depth,
                           .a = scratch.packed_rows,
                           .b = scratch.packed_keys,
                           .b_terms = shape_.depth,
                           .c = scratch.scores,
                           .c_row = stride_,
                           .adds = false});
        return;
      }
    }
    if (!transposes_) {
      MultiplyTiles({.m = rows,
                     .n = n,
                     .k = shape_.depth,
                     .a_stride = shape_.q.row,
                     .b_stride = shape_.k.row,
                     .c_stride = stride_,
                     .transpose_b = true},
                    q, Input<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, j), scratch.scores);
      return;
    }
    product_loops_.small_product({.rows = rows,
                                  .n = Padded(n),
                                  .k = shape_.depth,
                                  .a = q,
                                  .a_row = shape_.q.row,
                                  .a_step = 1,
                                  .b = scratch.keys,
                                  .b_row = stride_,
                                  .c = scratch.scores,
                                  .c_row = stride_,
                                  .adds = false});
  }

  // Scores of one row to weights against its running maximum; what was summed so far, in `o` too,
  // is brought to the new maximum.
  void ToWeights(T* scores, int64_t seen, T scale, T& maximum, T& sum, T* o) const {
    const T extreme = scale < T{0} ? row_loops_.min(scores, seen) : row_loops_.max(scores, seen);
    const T old_maximum = maximum, tile_maximum = scale * extreme;
    if (seen == 0 || tile_maximum == -kInfinity) {
      std::fill_n(scores, seen, T{0});
      return;
    }
    // Not std::max: a NaN must come through.
    if (!(tile_maximum <= maximum)) maximum = tile_maximum;
    if (o != nullptr && maximum != old_maximum) {
      const T correction = std::exp(old_maximum - maximum);
      sum *= correction;
      Scale(o, correction);
    }
    sum += attention_loops_.exp_and_sum(scores, scores, seen, scale, maximum);
  }

  void Scale(T* row, T factor) const {
    scale_(row, row, shape_.value_depth, static_cast<double>(factor));
  }

  const simd::ProductLoops<T>& product_loops_ = simd::BestLoops<simd::ProductLoops<T>>();
  const simd::RowLoops<T>& row_loops_ = simd::BestLoops<simd::RowLoops<T>>();
  const simd::AttentionLoops<T>& attention_loops_ = simd::BestLoops<simd::AttentionLoops<T>>();
  const simd::UnaryFn scale_ =
      simd::BestLoops<simd::ElementwiseLoops>()
          .unary[static_cast<int>(simd::UnaryOp::kScale)]
                [static_cast<int>(sizeof(T) == 4 ? simd::Type::kF32 : simd::Type::kF64)];
  AttentionShape shape_;
  int threads_;
  const simd::TileProducts* narrow_;  // null: products as T
  int64_t block_rows_;
  int64_t columns_, stride_;  // of a tile's keys, and of their scores
  bool transposes_;
  ThreadScratch<T> scratch_;
};

}  // namespace

absl::Status RegisterAttentionKernels(KernelRegistry& registry) {
  return registry.Register(
      "attention", Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> PlanOr {
        return PlanKernel(std::make_shared<AttentionForward<T>>(spec, spec.inputs.size() > 3));
      })));
}

}  // namespace braid::cpu
