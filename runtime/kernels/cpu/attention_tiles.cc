#include "runtime/kernels/cpu/attention_tiles.h"

#include <limits>

#include "absl/strings/str_format.h"
#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/make_kernel.h"
#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/cpu/strided.h"

namespace braid::cpu {
namespace {

HeadStrides StridesOf(int64_t heads, int64_t time, int64_t depth, bool time_first) {
  if (time_first) return {time * heads * depth, depth, heads * depth};
  return {heads * time * depth, time * depth, depth};
}

}  // namespace

int64_t TileColumns(int64_t bytes_per_column, int64_t columns) {
  constexpr int64_t kCacheBytes = 384 * 1024;  // of a second level of 512 KB to 2 MB
  constexpr int64_t kLeast = 64, kMost = 512;
  const int64_t fitting = kCacheBytes / std::max<int64_t>(bytes_per_column, 1) / kLeast * kLeast;
  return std::min(std::clamp(fitting, kLeast, kMost), std::max<int64_t>(columns, 1));
}

const simd::TileProducts* NarrowProductsOf(const KernelSpec& spec) {
  const bool is_asked_for = spec.attrs.Has("compute") && spec.attrs.Type("compute") == DType::kBF16;
  const bool is_f32 = spec.inputs[0].dtype == DType::kF32;
  return is_asked_for && is_f32 && HasTiles() ? simd::CompiledTileProducts() : nullptr;
}

AttentionShape::AttentionShape(const KernelSpec& spec, bool is_masked)
    : scale(spec.attrs.Double("scale")),
      causal(Flag(spec.attrs, "causal")),
      query_(spec.inputs[0]),
      key_(spec.inputs[1]) {
  const bool time_first = Flag(spec.attrs, "time_first");
  heads_axis_ = time_first ? 2 : 1;
  time_axis_ = time_first ? 1 : 2;
  const Shape &q_shape = query_.shape(), &k_shape = key_.shape();
  batch = q_shape[0];
  heads = q_shape[heads_axis_];
  kv_heads = k_shape[heads_axis_];
  queries = q_shape[time_axis_];
  keys = k_shape[time_axis_];
  depth = q_shape[3];
  value_depth = spec.inputs[2].shape()[3];
  all_queries_ = query_.logical[time_axis_];
  all_keys_ = key_.logical[time_axis_];
  group = std::max<int64_t>(1, query_.logical[heads_axis_]) /
          std::max<int64_t>(1, key_.logical[heads_axis_]);
  q = StridesOf(heads, queries, depth, time_first);
  k = StridesOf(kv_heads, keys, depth, time_first);
  v = StridesOf(kv_heads, keys, value_depth, time_first);
  o = StridesOf(heads, queries, value_depth, time_first);
  if (!is_masked) return;
  const OperandSpec& operand = spec.inputs[3];
  mask.input = 3;
  mask.is_bool = operand.dtype == DType::kBool;
  const std::vector<int64_t> dense = DenseStrides(operand.shape());
  const int rank = operand.shape().rank();
  for (int axis = 0; axis < rank; ++axis) {
    if (operand.logical[axis] != 1) mask.strides[4 - rank + axis] = dense[axis];
  }
}

absl::StatusOr<AttentionShape::Place> AttentionShape::PlaceIn(int64_t micro_batch) const {
  const Place place = {OffsetAt(query_, heads_axis_, micro_batch),
                       OffsetAt(key_, heads_axis_, micro_batch),
                       OffsetAt(query_, time_axis_, micro_batch)};
  if (heads > 0 && (KvHeadOf(place, 0) < 0 || KvHeadOf(place, heads - 1) >= kv_heads)) {
    return absl::InternalError(absl::StrFormat(
        "attention: heads %d to %d of the queries do not read the key heads %d to %d", place.head,
        place.head + heads - 1, place.kv_head, place.kv_head + kv_heads - 1));
  }
  return place;
}

template <class T>
T ApplyMask(const AttentionShape& shape, const void* mask, const HeadAt& at, int64_t i, int64_t j,
            T* scores, int64_t seen) {
  const MaskView& view = shape.mask;
  const T scale = static_cast<T>(shape.scale);
  if (view.input < 0) return scale;
  const auto& loops = simd::BestLoops<simd::AttentionLoops<T>>();
  const int64_t first = view.At(at.batch, at.head, i, j);
  const bool is_one = view.strides[3] == 0;  // for all keys
  if (view.is_bool) {
    const uint8_t* keep = static_cast<const uint8_t*>(mask) + first;
    if (!is_one) {
      loops.scale_where(keep, scale, scores, seen);
      return T{1};
    }
    if (*keep != 0) return scale;
    std::fill_n(scores, seen, -std::numeric_limits<T>::infinity());
    return T{1};
  }
  const T* terms = static_cast<const T*>(mask) + first;
  if (!is_one) {
    loops.scale_add(terms, scale, scores, seen);
  } else {
    for (int64_t column = 0; column < seen; ++column) {
      scores[column] = scale * scores[column] + *terms;
    }
  }
  return T{1};
}

template float ApplyMask(const AttentionShape&, const void*, const HeadAt&, int64_t, int64_t,
                         float*, int64_t);
template double ApplyMask(const AttentionShape&, const void*, const HeadAt&, int64_t, int64_t,
                          double*, int64_t);

}  // namespace braid::cpu
