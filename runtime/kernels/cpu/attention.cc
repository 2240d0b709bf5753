// attention: tile by tile with a running maximum and sum of each row (Milakov and Gimelshein,
// arXiv 1805.02867; Dao et al., arXiv 2205.14135), so that memory does not grow with the square of
// the sequence.
#include <algorithm>
#include <cmath>
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

template <class T>
class AttentionForward {
 public:
  AttentionForward(const KernelSpec& spec, bool is_masked)
      : shape_(spec, is_masked),
        threads_(spec.threads),
        columns_(
            TileColumns((shape_.depth + shape_.value_depth + kTileRows) * sizeof(T), shape_.keys)),
        scratch_size_(kTileRows * (columns_ + 2)),
        scratch_(scratch_size_ * std::max(1, threads_)) {}

  absl::Status operator()(const KernelRun& run) {
    ASSIGN_OR_RETURN(const AttentionShape::Place place, shape_.PlaceIn(run.micro_batch));
    ForEachItem(shape_.batch * shape_.heads, threads_, [&](int64_t item, int thread) {
      const int64_t head = item % shape_.heads;
      const HeadAt at = {item / shape_.heads, head, shape_.KvHeadOf(place, head)};
      for (int64_t i = 0; i < shape_.queries; i += kTileRows) {
        RunRows(run, place, at, i, scratch_.data() + thread * scratch_size_);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();

  // The queries from `first` on, up to a tile of them.
  void RunRows(const KernelRun& run, const AttentionShape::Place& place, const HeadAt& at,
               int64_t first, T* scratch) const {
    const int64_t rows = std::min(kTileRows, shape_.queries - first);
    T* scores = scratch;
    T* maxima = scratch + kTileRows * columns_;
    T* sums = maxima + kTileRows;
    std::fill_n(maxima, rows, -kInfinity);
    std::fill_n(sums, rows, T{0});
    const T* q = Input<T>(run, 0) + shape_.q.At(at.batch, at.head, first);
    T* o = Output<T>(run, 0) + shape_.o.At(at.batch, at.head, first);
    const int64_t seen_by_last = shape_.Seen(place, first + rows - 1);
    for (int64_t j = 0; j == 0 || j < seen_by_last; j += columns_) {
      const int64_t n = std::min(columns_, seen_by_last - j);
      MultiplyTiles({.m = rows,
                     .n = n,
                     .k = shape_.depth,
                     .a_stride = shape_.q.row,
                     .b_stride = shape_.k.row,
                     .c_stride = n,
                     .transpose_b = true},
                    q, Input<T>(run, 1) + shape_.k.At(at.batch, at.kv_head, j), scores);
      const void* mask = shape_.mask.input < 0 ? nullptr : run.inputs[shape_.mask.input];
      for (int64_t row = 0; row < rows; ++row) {
        T* weights = scores + row * n;
        const int64_t seen = std::clamp<int64_t>(shape_.Seen(place, first + row) - j, 0, n);
        const T scale = ApplyMask(shape_, mask, at, first + row, j, weights, seen);
        ToWeights(weights, seen, scale, maxima[row], sums[row],
                  j == 0 ? nullptr : o + row * shape_.o.row);
        std::fill(weights + seen, weights + n, T{0});
      }
      MultiplyTiles({.m = rows,
                     .n = shape_.value_depth,
                     .k = n,
                     .a_stride = n,
                     .b_stride = shape_.v.row,
                     .c_stride = shape_.o.row,
                     .adds = j > 0},
                    scores, Input<T>(run, 2) + shape_.v.At(at.batch, at.kv_head, j), o);
    }
    T* lse = Output<T>(run, 1) + (at.batch * shape_.heads + at.head) * shape_.queries + first;
    for (int64_t row = 0; row < rows; ++row) {
      if (sums[row] != 0) Scale(o + row * shape_.o.row, 1 / sums[row]);
      lse[row] = maxima[row] + std::log(sums[row]);  // -inf of a row that sees nothing
    }
  }

  // Scores of one row to weights against its running maximum; what was summed so far, in `o` too,
  // is brought to the new maximum.
  void ToWeights(T* scores, int64_t seen, T scale, T& maximum, T& sum, T* o) const {
    const T extreme = scale < T{0} ? loops_.min(scores, seen) : loops_.max(scores, seen);
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
    sum += loops_.exp_and_sum(scores, scores, seen, scale, maximum);
  }

  void Scale(T* row, T factor) const {
    scale_(row, row, shape_.value_depth, static_cast<double>(factor));
  }

  const simd::RowLoops<T>& loops_ = simd::Rows<T>(simd::BestLoops());
  const simd::UnaryFn scale_ =
      simd::BestLoops().unary[static_cast<int>(simd::UnaryOp::kScale)][static_cast<int>(
          sizeof(T) == 4 ? simd::Type::kF32 : simd::Type::kF64)];
  AttentionShape shape_;
  int threads_;
  int64_t columns_, scratch_size_;  // of one thread: scores, maxima, sums
  std::vector<T> scratch_;
};

}  // namespace

absl::Status RegisterAttentionKernels(KernelRegistry& registry) {
  return registry.Register(
      "attention",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> KernelOr {
        return MakeKernel(AttentionForward<T>(spec, spec.inputs.size() > 3));
      })));
}

}  // namespace braid::cpu
