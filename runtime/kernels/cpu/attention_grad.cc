// attention_grad and attention_mask_grad: the weights are computed again, tile by tile, from the
// rows' logsumexp (Dao et al., arXiv 2205.14135).
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/attention_tiles.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/fetch_ahead.h"
#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/product_loops.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

// A tile of the weights p and of the gradient ds of the scores, [rows, columns], with rows `stride`
// apart. A block of rows has its keys up to a limit; from there to the padding there are zeros.
template <class T>
struct WeightTile {
  int64_t first_row = 0, rows = 0, first_column = 0, columns = 0, stride = 0;
  T *p = nullptr, *ds = nullptr;
  int64_t limits[kTileRows / kBlockRows] = {};
};

// What both gradients start with. Inputs: q, k, v, [mask], o, lse, do, [dlse].
template <class T>
class AttentionBackward {
 public:
  // `narrow`: loops for products in bf16, or null.
  AttentionBackward(const KernelSpec& spec, const simd::TileProducts* narrow)
      : shape_(spec, Flag(spec.attrs, "masked")),
        threads_(spec.threads),
        first_(shape_.mask.input < 0 ? 3 : 4),
        has_rows_gradient_(static_cast<int>(spec.inputs.size()) > first_ + 3),
        narrow_(narrow),
        block_rows_(narrow_ != nullptr ? kNarrowBlockRows : kBlockRows),
        columns_(TileColumns(2 * (shape_.depth + shape_.value_depth + kTileRows) * sizeof(T),
                             shape_.keys)),
        stride_(simd::TilePadded(columns_)),
        delta_size_(shape_.queries * std::min(shape_.group, shape_.heads)),
        scratch_(threads_,
                 (2 * kTileRows + shape_.depth + shape_.value_depth) * stride_ + delta_size_) {
    if (narrow_ == nullptr) return;
    for (int64_t size : PackedSizes()) scratch_.AddPacked(size);
  }

  KernelMemory memory() const { return scratch_.memory(); }
  void Allocate() { scratch_.Allocate(); }

 protected:
  const T* Rows(const KernelRun& run, int input, const HeadAt& at, int64_t i) const {
    return Input<T>(run, input) + (at.batch * shape_.heads + at.head) * shape_.queries + i;
  }
  const T* Flow(const KernelRun& run, const HeadAt& at, int64_t i) const {
    return Input<T>(run, first_ + 2) + shape_.o.At(at.batch, at.head, i);
  }

  // What every weight's gradient in a row lacks: the sum of do * o, less the gradient of lse.
  void ComputeDelta(const KernelRun& run, const HeadAt& at, T* delta) const {
    const T* o = Input<T>(run, first_) + shape_.o.At(at.batch, at.head, 0);
    const T* flow = Flow(run, at, 0);
    constexpr int64_t kRowsAhead = 8;
    const int64_t bytes = shape_.value_depth * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < shape_.queries; ++i) {
      Prefetch(o + (i + kRowsAhead) * shape_.o.row, bytes);
      Prefetch(flow + (i + kRowsAhead) * shape_.o.row, bytes);
      delta[i] = row_loops_.dot(flow + i * shape_.o.row, o + i * shape_.o.row, shape_.value_depth);
      if (has_rows_gradient_) delta[i] -= *Rows(run, first_ + 3, at, i);
    }
  }

  // Of one thread: two tiles of weights, delta of the heads of a group, keys and values transposed.
  // Or, packed for products in bf16: the keys and values of a tile, and the keys with themselves as
  // terms; a block of rows; the tile's weights transposed; its rows.
  struct Scratch {
    T *p, *ds, *delta, *keys;
    uint16_t *packed_keys, *packed_values, *keys_as_terms, *block, *weights, *rows;
  };
  Scratch ScratchOf(int thread) {
    T* p = scratch_.Of(thread);
    T* delta = p + 2 * kTileRows * stride_;
    Scratch scratch = {
        .p = p, .ds = p + kTileRows * stride_, .delta = delta, .keys = delta + delta_size_};
    if (narrow_ == nullptr) return scratch;
    uint16_t* at = scratch_.PackedOf(thread);
    uint16_t** const operands[] = {&scratch.packed_keys,   &scratch.packed_values,
                                   &scratch.keys_as_terms, &scratch.block,
                                   &scratch.weights,       &scratch.rows};
    const std::array<int64_t, kPackedOperands> sizes = PackedSizes();
    for (int i = 0; i < kPackedOperands; ++i) at = (*operands[i] = at) + sizes[i];
    return scratch;
  }

  // A tile of the keys and values from j on, [depth, stride] each: the others' keys side by side.
  void PrepareKeys(const KernelRun& run, const HeadAt& at, int64_t j,
                   const Scratch& scratch) const {
    const int64_t keys = std::min(columns_, shape_.keys - j);
    const T* k = Input<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, j);
    const T* v = Input<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, j);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (narrow_ != nullptr) {
        narrow_->pack.b_transposed(k, shape_.k.row, keys, shape_.depth, scratch.packed_keys);
        narrow_->pack.b_transposed(v, shape_.v.row, keys, shape_.value_depth,
                                   scratch.packed_values);
        narrow_->pack.b(k, shape_.k.row, shape_.depth, keys, scratch.keys_as_terms);
        return;
      }
    }
    product_loops_.transpose(k, shape_.k.row, keys, shape_.depth, scratch.keys, stride_);
    product_loops_.transpose(v, shape_.v.row, keys, shape_.value_depth,
                             scratch.keys + shape_.depth * stride_, stride_);
  }

  // The tile of queries from `first_row` on and keys from `first_column` on, which PrepareKeys has
  // seen. `factor` multiplies ds; `delta` is of the head's query 0.
  WeightTile<T> ComputeTile(const KernelRun& run, const AttentionShape::Place& place,
                            const HeadAt& at, int64_t first_row, int64_t first_column,
                            const T* delta, T factor, const Scratch& scratch) const {
    WeightTile<T> tile = {.first_row = first_row,
                          .rows = std::min(kTileRows, shape_.queries - first_row),
                          .first_column = first_column,
                          .columns = std::min(columns_, shape_.keys - first_column),
                          .stride = stride_,
                          .p = scratch.p,
                          .ds = scratch.ds};
    for (int64_t begin = 0; begin < tile.rows; begin += block_rows_) {
      const int64_t end = std::min(tile.rows, begin + block_rows_);
      const int64_t limit = LimitOf(place, tile, end - 1);
      tile.limits[begin / block_rows_] = limit;
      const int64_t i = first_row + begin;
      Multiply({.rows_of = Input<T>(run, 0) + shape_.q.At(at.batch, at.head, i),
                .row_stride = shape_.q.row,
                .depth = shape_.depth,
                .keys = scratch.keys,
                .packed_keys = scratch.packed_keys,
                .rows = end - begin,
                .limit = limit,
                .to = tile.p + begin * stride_},
               scratch);
      Multiply({.rows_of = Flow(run, at, i),
                .row_stride = shape_.o.row,
                .depth = shape_.value_depth,
                .keys = scratch.keys + shape_.depth * stride_,
                .packed_keys = scratch.packed_values,
                .rows = end - begin,
                .limit = limit,
                .to = tile.ds + begin * stride_},
               scratch);
      // What is packed is packed to the tile's end.
      const int64_t zero_end =
          narrow_ == nullptr ? Padded(limit) : LimitOf(place, tile, tile.rows - 1);
      for (int64_t row = begin; row < end; ++row) {
        FinishRow(run, place, at, tile, row, zero_end, delta[first_row + row], factor);
      }
    }
    return tile;
  }

  const simd::RowLoops<T>& row_loops_ = simd::BestLoops<simd::RowLoops<T>>();
  const simd::ProductLoops<T>& product_loops_ = simd::BestLoops<simd::ProductLoops<T>>();
  const simd::AttentionLoops<T>& attention_loops_ = simd::BestLoops<simd::AttentionLoops<T>>();
  AttentionShape shape_;
  int threads_;
  int first_;  // input: o
  bool has_rows_gradient_;
  const simd::TileProducts* narrow_;  // null: products as T
  int64_t block_rows_;
  int64_t columns_, stride_;  // of a tile's keys, and of their weights

 private:
  static constexpr int kPackedOperands = 6;
  std::array<int64_t, kPackedOperands> PackedSizes() const {
    if (narrow_ == nullptr) return {};
    const int64_t depth = std::max(shape_.depth, shape_.value_depth);
    return {simd::TileElements(columns_, shape_.depth),
            simd::TileElements(columns_, shape_.value_depth),
            simd::TileElements(shape_.depth, columns_),
            simd::TileElements(block_rows_, std::max(depth, columns_)),
            simd::TileElements(columns_, kTileRows),
            simd::TileElements(depth, kTileRows)};
  }

  // How many of the tile's keys a row of it sees.
  int64_t LimitOf(const AttentionShape::Place& place, const WeightTile<T>& tile,
                  int64_t row) const {
    return std::clamp<int64_t>(shape_.Seen(place, tile.first_row + row) - tile.first_column, 0,
                               tile.columns);
  }

  // A block of rows times the keys or values that PrepareKeys has seen.
  struct BlockProduct {
    const T* rows_of;
    int64_t row_stride, depth;
    const T* keys;
    const uint16_t* packed_keys;
    int64_t rows, limit;
    T* to;
  };
  void Multiply(const BlockProduct& product, const Scratch& scratch) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (narrow_ != nullptr) {
        narrow_->pack.a(product.rows_of, product.row_stride, product.rows, product.depth,
                        scratch.block);
        // Whole tiles: there is room for them.
        narrow_->multiply({.m = block_rows_,
                           .n = simd::TilePadded(product.limit),
                           .k = product.depth,
                           .a = scratch.block,
                           .b = product.packed_keys,
                           .b_terms = product.depth,
                           .c = product.to,
                           .c_row = stride_,
                           .adds = false});
        return;
      }
    }
    product_loops_.small_product({.rows = product.rows,
                                  .n = Padded(product.limit),
                                  .k = product.depth,
                                  .a = product.rows_of,
                                  .a_row = product.row_stride,
                                  .a_step = 1,
                                  .b = product.keys,
                                  .b_row = stride_,
                                  .c = product.to,
                                  .c_row = stride_,
                                  .adds = false});
  }

  // From scores and products with the flow to weights and their gradient, and zeros to `end`.
  void FinishRow(const KernelRun& run, const AttentionShape::Place& place, const HeadAt& at,
                 const WeightTile<T>& tile, int64_t row, int64_t end, T delta, T factor) const {
    const int64_t i = tile.first_row + row;
    T* p = tile.p + row * stride_;
    T* ds = tile.ds + row * stride_;
    const T lse = *Rows(run, first_ + 1, at, i);
    int64_t seen = LimitOf(place, tile, row);
    if (lse == -std::numeric_limits<T>::infinity()) seen = 0;  // all is masked
    const void* mask = shape_.mask.input < 0 ? nullptr : run.inputs[shape_.mask.input];
    const T scale = ApplyMask(shape_, mask, at, i, tile.first_column, p, seen);
    attention_loops_.attention_weights_grad(
        p, ds, seen, {.scale = scale, .lse = lse, .delta = delta, .factor = factor});
    std::fill(p + seen, p + end, T{0});
    std::fill(ds + seen, ds + end, T{0});
  }

  int64_t delta_size_;  // of one thread
  ThreadScratch<T> scratch_;
};

// Head of k by head: its keys tile by tile, and for each tile the queries that see it.
template <class T>
class AttentionGradient : AttentionBackward<T> {
  using Base = AttentionBackward<T>;
  using Base::shape_, Base::columns_;

 public:
  using Base::Allocate, Base::memory;

  explicit AttentionGradient(const KernelSpec& spec) : Base(spec, NarrowProductsOf(spec)) {}

  absl::Status operator()(const KernelRun& run) {
    BRAID_ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    ForEachItem(shape_.batch * shape_.kv_heads, Base::threads_, [&](int64_t item, int thread) {
      const typename Base::Scratch scratch = Base::ScratchOf(thread);
      const simd::TileScope tiles(Base::narrow_);
      HeadAt at = {.batch = item / shape_.kv_heads, .kv_head = item % shape_.kv_heads};
      const int64_t first = shape_.FirstHeadOf(place, at.kv_head);
      const int64_t end = shape_.FirstHeadOf(place, at.kv_head + 1);
      for (at.head = first; at.head < end; ++at.head) {
        Base::ComputeDelta(run, at, scratch.delta + (at.head - first) * shape_.queries);
      }
      for (int64_t j = 0; j == 0 || j < shape_.keys; j += columns_) {
        ZeroKeys(run, at, j);
        Base::PrepareKeys(run, at, j, scratch);
        for (at.head = first; at.head < end; ++at.head) {
          const T* delta = scratch.delta + (at.head - first) * shape_.queries;
          for (int64_t i = 0; i < shape_.queries; i += kTileRows) {
            const WeightTile<T> tile = Base::ComputeTile(run, place, at, i, j, delta,
                                                         static_cast<T>(shape_.scale), scratch);
            if (Base::narrow_ == nullptr) {
              Add(run, at, tile);
            } else {
              AddNarrow(run, at, tile, scratch);
            }
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  void ZeroKeys(const KernelRun& run, const HeadAt& at, int64_t j) const {
    for (int64_t key = j; key < std::min(j + columns_, shape_.keys); ++key) {
      std::fill_n(Output<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, key), shape_.depth, T{0});
      std::fill_n(Output<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, key), shape_.value_depth,
                  T{0});
    }
  }

  // dq = ds k, dk += ds^T q, dv += p^T do. The first tile of a row of tiles starts dq.
  void Add(const KernelRun& run, const HeadAt& at, const WeightTile<T>& tile) const {
    const int64_t q_at = shape_.q.At(at.batch, at.head, tile.first_row);
    const int64_t k_at = shape_.k.At(at.batch, at.kv_head, tile.first_column);
    const int64_t v_at = shape_.v.At(at.batch, at.kv_head, tile.first_column);
    for (int64_t begin = 0; begin < tile.rows; begin += kBlockRows) {
      Base::product_loops_.small_product({.rows = std::min(kBlockRows, tile.rows - begin),
                                          .n = shape_.depth,
                                          .k = tile.limits[begin / kBlockRows],
                                          .a = tile.ds + begin * tile.stride,
                                          .a_row = tile.stride,
                                          .a_step = 1,
                                          .b = Input<T>(run, 1) + k_at,
                                          .b_row = shape_.k.row,
                                          .c = Output<T>(run, 0) + q_at + begin * shape_.q.row,
                                          .c_row = shape_.q.row,
                                          .adds = tile.first_column > 0});
    }
    for (int64_t key = 0; key < tile.columns; key += kBlockRows) {
      // The first rows may see none of these keys.
      int64_t row = 0;
      while (row < tile.rows && tile.limits[row / kBlockRows] <= key) row += kBlockRows;
      if (row >= tile.rows) continue;
      simd::SmallProduct<T> product = {.rows = std::min(kBlockRows, tile.columns - key),
                                       .n = shape_.depth,
                                       .k = tile.rows - row,
                                       .a = tile.ds + row * tile.stride + key,
                                       .a_row = 1,
                                       .a_step = tile.stride,
                                       .b = Input<T>(run, 0) + q_at + row * shape_.q.row,
                                       .b_row = shape_.q.row,
                                       .c = Output<T>(run, 1) + k_at + key * shape_.k.row,
                                       .c_row = shape_.k.row,
                                       .adds = true};
      Base::product_loops_.small_product(product);
      product.n = shape_.value_depth;
      product.a = tile.p + row * tile.stride + key;
      product.b = Base::Flow(run, at, tile.first_row + row);
      product.b_row = shape_.o.row;
      product.c = Output<T>(run, 2) + v_at + key * shape_.v.row;
      product.c_row = shape_.v.row;
      Base::product_loops_.small_product(product);
    }
  }

  // The same of packed operands, whole rows of tiles at a time.
  void AddNarrow(const KernelRun& run, const HeadAt& at, const WeightTile<T>& tile,
                 const typename Base::Scratch& scratch) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      const simd::TileProducts& narrow = *Base::narrow_;
      const int64_t q_at = shape_.q.At(at.batch, at.head, tile.first_row);
      const int64_t keys = tile.limits[(tile.rows - 1) / kNarrowBlockRows];
      for (int64_t begin = 0; begin < tile.rows; begin += kNarrowBlockRows) {
        const int64_t rows = std::min(kNarrowBlockRows, tile.rows - begin);
        const int64_t limit = tile.limits[begin / kNarrowBlockRows];
        narrow.pack.a(tile.ds + begin * tile.stride, tile.stride, rows, limit, scratch.block);
        narrow.multiply({.m = rows,
                         .n = shape_.depth,
                         .k = limit,
                         .a = scratch.block,
                         .b = scratch.keys_as_terms,
                         .b_terms = tile.columns,
                         .c = Output<T>(run, 0) + q_at + begin * shape_.q.row,
                         .c_row = shape_.q.row,
                         .adds = tile.first_column > 0});
      }
      simd::TileProduct product = {
          .m = keys,
          .n = shape_.depth,
          .k = tile.rows,
          .a = scratch.weights,
          .b = scratch.rows,
          .b_terms = tile.rows,
          .c = Output<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, tile.first_column),
          .c_row = shape_.k.row,
          .adds = true};
      narrow.pack.a_transposed(tile.ds, tile.stride, keys, tile.rows, scratch.weights);
      narrow.pack.b(Input<T>(run, 0) + q_at, shape_.q.row, shape_.depth, tile.rows, scratch.rows);
      narrow.multiply(product);
      product.n = shape_.value_depth;
      product.c = Output<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, tile.first_column);
      product.c_row = shape_.v.row;
      narrow.pack.a_transposed(tile.p, tile.stride, keys, tile.rows, scratch.weights);
      narrow.pack.b(Base::Flow(run, at, tile.first_row), shape_.o.row, shape_.value_depth,
                    tile.rows, scratch.rows);
      narrow.multiply(product);
    }
  }
};

// Adds the gradient of the masked scores into an additive mask's. On one thread: heads and batch
// entries may share the mask's elements.
template <class T>
class AttentionMaskGradient : AttentionBackward<T> {
  using Base = AttentionBackward<T>;
  using Base::shape_, Base::columns_;

 public:
  using Base::Allocate, Base::memory;

  explicit AttentionMaskGradient(const KernelSpec& spec)
      : Base(spec, /*narrow=*/nullptr), elements_(spec.outputs[0].num_elements()) {}

  absl::Status operator()(const KernelRun& run) {
    BRAID_ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    std::fill_n(Output<T>(run, 0), elements_, T{0});
    const typename Base::Scratch scratch = Base::ScratchOf(0);
    HeadAt at;
    for (at.batch = 0; at.batch < shape_.batch; ++at.batch) {
      for (at.head = 0; at.head < shape_.heads; ++at.head) {
        at.kv_head = shape_.KvHeadOf(place, at.head);
        Base::ComputeDelta(run, at, scratch.delta);
        const int64_t seen = shape_.Seen(place, shape_.queries - 1);
        for (int64_t j = 0; j < seen; j += columns_) {
          Base::PrepareKeys(run, at, j, scratch);
          for (int64_t i = 0; i < shape_.queries; i += kTileRows) {
            Add(run, at, Base::ComputeTile(run, place, at, i, j, scratch.delta, T{1}, scratch));
          }
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  void Add(const KernelRun& run, const HeadAt& at, const WeightTile<T>& tile) const {
    for (int64_t row = 0; row < tile.rows; ++row) {
      const T* ds = tile.ds + row * tile.stride;
      const int64_t columns = tile.limits[row / kBlockRows];
      T* to = Output<T>(run, 0) +
              shape_.mask.At(at.batch, at.head, tile.first_row + row, tile.first_column);
      if (shape_.mask.strides[3] == 0) {
        *to += Base::row_loops_.sum(ds, columns);
      } else {
        Base::row_loops_.add_scaled(ds, T{1}, to, columns);
      }
    }
  }

  int64_t elements_;
};

}  // namespace

absl::Status RegisterAttentionGradKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "attention_grad",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> PlanOr {
        return PlanKernel(std::make_shared<AttentionGradient<T>>(spec));
      }))));
  return registry.Register(
      "attention_mask_grad",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> PlanOr {
        return PlanKernel(std::make_shared<AttentionMaskGradient<T>>(spec));
      })));
}

}  // namespace braid::cpu
