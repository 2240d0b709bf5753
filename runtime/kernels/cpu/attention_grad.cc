// attention_grad and attention_mask_grad: the weights are computed again, tile by tile, from the
// rows' logsumexp (Dao et al., arXiv 2205.14135).
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/attention_tiles.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/loops.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// A tile of the weights p and of the gradient ds of the scores, [rows, columns] dense.
template <class T>
struct WeightTile {
  int64_t first_row = 0, rows = 0, first_column = 0, columns = 0;
  T *p = nullptr, *ds = nullptr;
};

// What both gradients start with. Inputs: q, k, v, [mask], o, lse, do, [dlse].
template <class T>
class AttentionBackward {
 public:
  explicit AttentionBackward(const KernelSpec& spec)
      : shape_(spec, Flag(spec.attrs, "masked")),
        threads_(spec.threads),
        first_(shape_.mask.input < 0 ? 3 : 4),
        has_rows_gradient_(static_cast<int>(spec.inputs.size()) > first_ + 3),
        columns_(TileColumns(2 * (shape_.depth + shape_.value_depth + kTileRows) * sizeof(T),
                             shape_.keys)),
        delta_size_(shape_.queries * std::min(shape_.group, shape_.heads)),
        scratch_size_(2 * kTileRows * columns_ + delta_size_),
        scratch_(scratch_size_ * std::max(1, threads_)) {}

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
    for (int64_t i = 0; i < shape_.queries; ++i) {
      delta[i] = loops_.dot(flow + i * shape_.o.row, o + i * shape_.o.row, shape_.value_depth);
      if (has_rows_gradient_) delta[i] -= *Rows(run, first_ + 3, at, i);
    }
  }

  // `factor` multiplies ds; `delta` is of the head's query 0.
  void ComputeTile(const KernelRun& run, const AttentionShape::Place& place, const HeadAt& at,
                   const T* delta, T factor, const WeightTile<T>& tile) const {
    MultiplyTiles({.m = tile.rows,
                   .n = tile.columns,
                   .k = shape_.depth,
                   .a_stride = shape_.q.row,
                   .b_stride = shape_.k.row,
                   .c_stride = tile.columns,
                   .transpose_b = true},
                  Input<T>(run, 0) + shape_.q.At(at.batch, at.head, tile.first_row),
                  Input<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, tile.first_column), tile.p);
    MultiplyTiles({.m = tile.rows,
                   .n = tile.columns,
                   .k = shape_.value_depth,
                   .a_stride = shape_.o.row,
                   .b_stride = shape_.v.row,
                   .c_stride = tile.columns,
                   .transpose_b = true},
                  Flow(run, at, tile.first_row),
                  Input<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, tile.first_column), tile.ds);
    const void* mask = shape_.mask.input < 0 ? nullptr : run.inputs[shape_.mask.input];
    const T* lse = Rows(run, first_ + 1, at, tile.first_row);
    for (int64_t row = 0; row < tile.rows; ++row) {
      const int64_t i = tile.first_row + row;
      T* p = tile.p + row * tile.columns;
      T* ds = tile.ds + row * tile.columns;
      int64_t seen =
          std::clamp<int64_t>(shape_.Seen(place, i) - tile.first_column, 0, tile.columns);
      if (lse[row] == -std::numeric_limits<T>::infinity()) seen = 0;  // all is masked
      const T scale = ApplyMask(shape_, mask, at, i, tile.first_column, p, seen);
      loops_.attention_weights_grad(
          p, ds, seen, {.scale = scale, .lse = lse[row], .delta = delta[i], .factor = factor});
      std::fill(p + seen, p + tile.columns, T{0});
      std::fill(ds + seen, ds + tile.columns, T{0});
    }
  }

  // Of one thread: two tiles, then delta of the heads of a group.
  T* ScratchOf(int thread) { return scratch_.data() + thread * scratch_size_; }
  WeightTile<T> TileIn(T* scratch) const {
    return {.p = scratch, .ds = scratch + kTileRows * columns_};
  }
  T* DeltaIn(T* scratch) const { return scratch + 2 * kTileRows * columns_; }

  const simd::RowLoops<T>& loops_ = simd::Rows<T>(simd::BestLoops());
  AttentionShape shape_;
  int threads_;
  int first_;  // input: o
  bool has_rows_gradient_;
  int64_t columns_, delta_size_, scratch_size_;
  std::vector<T> scratch_;
};

// Head of k by head: its keys tile by tile, and for each tile the queries that see it.
template <class T>
class AttentionGradient : AttentionBackward<T> {
  using Base = AttentionBackward<T>;
  using Base::shape_, Base::columns_;

 public:
  explicit AttentionGradient(const KernelSpec& spec) : Base(spec) {}

  absl::Status operator()(const KernelRun& run) {
    ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    ForEachItem(shape_.batch * shape_.kv_heads, Base::threads_, [&](int64_t item, int thread) {
      T* scratch = Base::ScratchOf(thread);
      HeadAt at = {.batch = item / shape_.kv_heads, .kv_head = item % shape_.kv_heads};
      const int64_t first = shape_.FirstHeadOf(place, at.kv_head);
      const int64_t end = shape_.FirstHeadOf(place, at.kv_head + 1);
      for (at.head = first; at.head < end; ++at.head) {
        Base::ComputeDelta(run, at, Base::DeltaIn(scratch) + (at.head - first) * shape_.queries);
      }
      for (int64_t j = 0; j == 0 || j < shape_.keys; j += columns_) {
        ZeroKeys(run, at, j);
        for (at.head = first; at.head < end; ++at.head) {
          const T* delta = Base::DeltaIn(scratch) + (at.head - first) * shape_.queries;
          for (int64_t i = 0; i < shape_.queries; i += kTileRows) {
            WeightTile<T> tile = Base::TileIn(scratch);
            tile.first_row = i;
            tile.rows = std::min(kTileRows, shape_.queries - i);
            tile.first_column = j;
            tile.columns = std::min(columns_, shape_.Seen(place, i + tile.rows - 1) - j);
            if (tile.columns > 0) {
              Base::ComputeTile(run, place, at, delta, static_cast<T>(shape_.scale), tile);
            }
            Add(run, at, tile);
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
    const int64_t columns = std::max<int64_t>(tile.columns, 0);
    const int64_t q_at = shape_.q.At(at.batch, at.head, tile.first_row);
    const int64_t k_at = shape_.k.At(at.batch, at.kv_head, tile.first_column);
    const int64_t v_at = shape_.v.At(at.batch, at.kv_head, tile.first_column);
    MultiplyTiles({.m = tile.rows,
                   .n = shape_.depth,
                   .k = columns,
                   .a_stride = columns,
                   .b_stride = shape_.k.row,
                   .c_stride = shape_.q.row,
                   .adds = tile.first_column > 0},
                  tile.ds, Input<T>(run, 1) + k_at, Output<T>(run, 0) + q_at);
    MultiplyTiles({.m = columns,
                   .n = shape_.depth,
                   .k = tile.rows,
                   .a_stride = columns,
                   .b_stride = shape_.q.row,
                   .c_stride = shape_.k.row,
                   .transpose_a = true,
                   .adds = true},
                  tile.ds, Input<T>(run, 0) + q_at, Output<T>(run, 1) + k_at);
    MultiplyTiles({.m = columns,
                   .n = shape_.value_depth,
                   .k = tile.rows,
                   .a_stride = columns,
                   .b_stride = shape_.o.row,
                   .c_stride = shape_.v.row,
                   .transpose_a = true,
                   .adds = true},
                  tile.p, Base::Flow(run, at, tile.first_row), Output<T>(run, 2) + v_at);
  }
};

// Adds the gradient of the masked scores into an additive mask's. On one thread: heads and batch
// entries may share the mask's elements.
template <class T>
class AttentionMaskGradient : AttentionBackward<T> {
  using Base = AttentionBackward<T>;
  using Base::shape_, Base::columns_;

 public:
  explicit AttentionMaskGradient(const KernelSpec& spec)
      : Base(spec), elements_(spec.outputs[0].num_elements()) {}

  absl::Status operator()(const KernelRun& run) {
    ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    std::fill_n(Output<T>(run, 0), elements_, T{0});
    T* scratch = Base::ScratchOf(0);
    HeadAt at;
    for (at.batch = 0; at.batch < shape_.batch; ++at.batch) {
      for (at.head = 0; at.head < shape_.heads; ++at.head) {
        at.kv_head = shape_.KvHeadOf(place, at.head);
        T* delta = Base::DeltaIn(scratch);
        Base::ComputeDelta(run, at, delta);
        WeightTile<T> tile = Base::TileIn(scratch);
        for (int64_t i = 0; i < shape_.queries; i += kTileRows) {
          tile.first_row = i;
          tile.rows = std::min(kTileRows, shape_.queries - i);
          const int64_t seen_by_last = shape_.Seen(place, i + tile.rows - 1);
          for (int64_t j = 0; j < seen_by_last; j += columns_) {
            tile.first_column = j;
            tile.columns = std::min(columns_, seen_by_last - j);
            Base::ComputeTile(run, place, at, delta, T{1}, tile);
            Add(run, at, tile);
          }
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  void Add(const KernelRun& run, const HeadAt& at, const WeightTile<T>& tile) const {
    for (int64_t row = 0; row < tile.rows; ++row) {
      const T* ds = tile.ds + row * tile.columns;
      T* to = Output<T>(run, 0) +
              shape_.mask.At(at.batch, at.head, tile.first_row + row, tile.first_column);
      if (shape_.mask.strides[3] == 0) {
        *to += Base::loops_.sum(ds, tile.columns);
      } else {
        Base::loops_.add_scaled(ds, T{1}, to, tile.columns);
      }
    }
  }

  int64_t elements_;
};

}  // namespace

absl::Status RegisterAttentionGradKernels(KernelRegistry& registry) {
  RETURN_IF_ERROR(registry.Register(
      "attention_grad",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> KernelOr {
        return MakeKernel(AttentionGradient<T>(spec));
      }))));
  return registry.Register(
      "attention_mask_grad",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> KernelOr {
        return MakeKernel(AttentionMaskGradient<T>(spec));
      })));
}

}  // namespace braid::cpu
