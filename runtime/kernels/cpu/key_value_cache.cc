// cached_attention and write_rows: inference token by token. What the caches hold beyond the
// position is not read, so that a step costs what the text is long, not what the cache is.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/attention_tiles.h"
#include "runtime/kernels/cpu/elementwise_loops.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/for_each_item.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/index_error.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Where `rows` rows go in a cache of `size`: what the operand at `input` says, if they fit there.
absl::StatusOr<int64_t> PositionOf(const KernelSpec& spec, const KernelRun& run, int input,
                                   int64_t rows, int64_t size) {
  const int64_t position =
      IndexReader{run.inputs[input], spec.inputs[input].dtype == DType::kI64}[0];
  if (position >= 0 && position <= size - rows) return position;
  return IndexOutOfRange(
      spec,
      {.what = "position", .value = position, .position = 0, .low = 0, .high = size - rows + 1});
}

template <class T>
class CachedAttention {
 public:
  explicit CachedAttention(const KernelSpec& spec)
      : spec_(spec),
        batch_(spec.inputs[0].shape()[0]),
        time_(spec.inputs[0].shape()[1]),
        heads_(spec.inputs[0].shape()[2]),
        depth_(spec.inputs[0].shape()[3]),
        value_depth_(spec.inputs[2].shape()[3]),
        cache_(spec.inputs[3].shape()[1]),
        scale_(static_cast<T>(spec.attrs.Double("scale"))),
        scratch_size_(std::min(kRows, time_) * cache_),
        scratch_(scratch_size_ * std::max(1, spec.threads)) {}

  absl::Status operator()(const KernelRun& run) {
    BRAID_ASSIGN_OR_RETURN(const int64_t position, PositionOf(spec_, run, 5, time_, cache_));
    ForEachItem(batch_ * heads_, spec_.threads, [&](int64_t item, int thread) {
      for (int64_t i = 0; i < time_; i += kRows) {
        RunRows(run, {.batch = item / heads_, .head = item % heads_}, position, i,
                scratch_.data() + thread * scratch_size_);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kRows = 16;  // of queries, whose scores are held together

  HeadStrides StridesOf(int64_t time, int64_t depth) const {
    return {time * heads_ * depth, depth, heads_ * depth};
  }

  // The queries from `first` on. A row of scores is the `position` cached ones, then the fresh.
  void RunRows(const KernelRun& run, const HeadAt& at, int64_t position, int64_t first,
               T* scores) const {
    const int64_t rows = std::min(kRows, time_ - first), fresh = first + rows;
    const HeadStrides keys = StridesOf(time_, depth_), values = StridesOf(time_, value_depth_);
    const HeadStrides old_keys = StridesOf(cache_, depth_);
    const HeadStrides old_values = StridesOf(cache_, value_depth_);
    TileProduct product = {.m = rows,
                           .n = position,
                           .k = depth_,
                           .a_stride = keys.row,
                           .b_stride = keys.row,
                           .c_stride = cache_,
                           .transpose_b = true};
    const T* q = Input<T>(run, 0) + keys.At(at.batch, at.head, first);
    MultiplyTiles(product, q, Input<T>(run, 3) + old_keys.At(at.batch, at.head, 0), scores);
    product.n = fresh;
    MultiplyTiles(product, q, Input<T>(run, 1) + keys.At(at.batch, at.head, 0), scores + position);
    for (int64_t row = 0; row < rows; ++row) {
      T* weights = scores + row * cache_;
      const int64_t seen = position + first + row + 1;
      const T extreme =
          scale_ < T{0} ? row_loops_.min(weights, seen) : row_loops_.max(weights, seen);
      const T sum = attention_loops_.exp_and_sum(weights, weights, seen, scale_, scale_ * extreme);
      multiply_(weights, weights, seen, 1 / static_cast<double>(sum));
      std::fill(weights + seen, weights + position + fresh, T{0});
    }
    product = {.m = rows,
               .n = value_depth_,
               .k = position,
               .a_stride = cache_,
               .b_stride = values.row,
               .c_stride = values.row};
    T* o = Output<T>(run, 0) + values.At(at.batch, at.head, first);
    MultiplyTiles(product, scores, Input<T>(run, 4) + old_values.At(at.batch, at.head, 0), o);
    product.k = fresh;
    product.adds = true;
    MultiplyTiles(product, scores + position, Input<T>(run, 2) + values.At(at.batch, at.head, 0),
                  o);
  }

  const simd::RowLoops<T>& row_loops_ = simd::BestLoops<simd::RowLoops<T>>();
  const simd::AttentionLoops<T>& attention_loops_ = simd::BestLoops<simd::AttentionLoops<T>>();
  const simd::UnaryFn multiply_ =
      simd::BestLoops<simd::ElementwiseLoops>()
          .unary[static_cast<int>(simd::UnaryOp::kScale)]
                [static_cast<int>(sizeof(T) == 4 ? simd::Type::kF32 : simd::Type::kF64)];
  KernelSpec spec_;
  int64_t batch_, time_, heads_, depth_, value_depth_, cache_;
  T scale_;
  int64_t scratch_size_;  // of one thread
  std::vector<T> scratch_;
};

KernelOr MakeWriteRows(const KernelSpec& spec) {
  const OperandSpec &variable = spec.inputs[0], &rows = spec.inputs[1];
  if (variable.dtype != rows.dtype || !IsIndexType(spec.inputs[2].dtype)) {
    return UnsupportedTypes(spec);
  }
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView to = ViewAround(variable.shape(), axis), from = ViewAround(rows.shape(), axis);
  const int64_t bytes = to.inner * static_cast<int64_t>(SizeOf(variable.dtype));  // of a row
  return MakeKernel([=](const KernelRun& run) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const int64_t position, PositionOf(spec, run, 2, from.size, to.size));
    if (from.size * bytes == 0) return absl::OkStatus();
    for (int64_t outer = 0; outer < to.outer; ++outer) {
      std::memcpy(MutableInput<std::byte>(run, 0) + (outer * to.size + position) * bytes,
                  Input<std::byte>(run, 1) + outer * from.size * bytes,
                  static_cast<size_t>(from.size * bytes));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status RegisterKeyValueCacheKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("write_rows", MakeWriteRows));
  return registry.Register(
      "cached_attention",
      Widened(ForFloats([]<class T>(const KernelSpec& spec, ElementType<T>) -> KernelOr {
        if (!IsIndexType(spec.inputs[5].dtype)) return UnsupportedTypes(spec);
        return MakeKernel(CachedAttention<T>(spec));
      })));
}

}  // namespace braid::cpu
