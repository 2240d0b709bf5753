#include "api/onnx/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/node_view.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The score of a key that is not seen.
Tensor Unseen(LogicalGraph& graph, DType dtype) {
  return Constant(graph, -kInfinity, {.dtype = dtype});
}

// Masked scores, and where a query sees no key: there softmax would divide by zero.
struct Masked {
  Tensor scores;
  Tensor is_blind = {};  // [.., queries, 1]; none if all see something
};

Masked ApplyMask(Tensor scores, const AttendOptions& options) {
  Masked masked = {.scores = scores};
  const ReduceOptions over_keys = {.axes = {-1}, .keep_dims = true};
  Tensor bias = options.added;
  if (!options.seen.is_none()) {
    const Tensor lowest = Unseen(*scores.graph(), scores.dtype());
    if (bias.is_none()) {
      masked.scores = Where(options.seen, scores, lowest);
      masked.is_blind = LogicalNot(ReduceAny(options.seen, over_keys));
    } else {
      bias = Where(options.seen, bias, lowest);
    }
  }
  if (!bias.is_none()) {
    masked.scores = Add(scores, bias);
    masked.is_blind = IsInf(ReduceMax(bias, over_keys), {.positive = false});
  }
  return masked;
}

// Over the keys, with a sink of each head beside them.
Tensor SoftmaxWithSinks(Tensor scores, Tensor sinks) {
  if (sinks.is_none()) return Softmax(scores);
  const Shape shape = scores.shape();
  const Tensor column = BroadcastTo(Reshape(Cast(sinks, scores.dtype()), {1, shape[1], 1, 1}),
                                    {shape[0], shape[1], shape[2], 1});
  return SliceAxis(Softmax(Concat({scores, column}, -1)), -1, {.end = shape[3]});
}

Tensor Weights(const Masked& masked, const AttendOptions& options) {
  if (masked.is_blind.is_none()) return SoftmaxWithSinks(masked.scores, options.sinks);
  const Tensor zero = Constant(*masked.scores.graph(), 0, {.dtype = masked.scores.dtype()});
  const Tensor scores = Where(masked.is_blind, zero, masked.scores);
  return Where(masked.is_blind, zero, SoftmaxWithSinks(scores, options.sinks));
}

bool IsFused(Tensor q, const AttendOptions& options) {
  // Narrow types are computed in f32.
  const bool is_wide = options.softmax == DType::kF64 && q.dtype() != DType::kF64;
  return options.softcap == 0 && options.sinks.is_none() && !is_wide &&
         options.scores == ScoresOutput::kNone;
}

// [batch, heads, rows, columns] as [batch, kv heads, heads / kv heads * rows, columns]: neighbours
// share keys and values.
Tensor ByKvHead(Tensor x, int64_t kv_heads) {
  const Shape shape = x.shape();
  const int64_t group = kv_heads > 0 ? shape[1] / kv_heads : 0;
  return Reshape(x, {shape[0], kv_heads, group * shape[2], shape[3]});
}

}  // namespace

absl::StatusOr<Tensor> SplitHeads(Tensor x, int64_t heads) {
  const Shape shape = x.shape();
  if (shape.rank() != 3 || heads < 1 || shape[2] % heads != 0) {
    return Wrong(absl::StrCat(heads, " heads of ", shape.ToString(),
                              "; [batch, time, heads * depth] is needed"));
  }
  return Transpose(Reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

Tensor MergeHeads(Tensor x) {
  const Shape shape = x.shape();
  return Reshape(Transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

Tensor SeenIn(const Window& window) {
  if (!window.left && !window.right) return {};
  LogicalGraph& graph = window.graph;
  Tensor places = Range(graph, window.queries, {.start = static_cast<double>(window.offset)});
  places = Reshape(places, {window.queries, 1});
  if (!window.offsets.is_none()) {
    places = Add(Reshape(window.offsets, {-1, 1, 1, 1}), places);
  }
  const Tensor keys = Range(graph, window.keys);
  Tensor seen;
  if (window.left) {
    seen = GreaterEqual(keys, Shifted(places, -*window.left));
  }
  if (window.right) {
    seen = Both(seen, LessEqual(keys, Shifted(places, *window.right)));
  }
  return seen;
}

Tensor SeenBefore(Tensor lengths, int64_t keys) {
  if (!lengths.valid()) return lengths;
  return Less(Range(*lengths.graph(), keys), Reshape(Cast(lengths, DType::kI64), {-1, 1, 1, 1}));
}

Tensor Shifted(Tensor x, int64_t by) {
  if (by == 0 || !x.valid()) return x;
  return Add(x, Constant(*x.graph(), static_cast<double>(by), {.dtype = x.dtype()}));
}

Tensor Both(Tensor seen_a, Tensor seen_b) {
  if (seen_a.is_none()) return seen_b;
  return seen_b.is_none() ? seen_a : LogicalAnd(seen_a, seen_b);
}

Tensor PutAt(Tensor cache, Tensor update, Tensor starts, const PutOptions& options) {
  const Shape shape = update.shape();
  const auto axis = static_cast<int>(options.axis);
  Tensor places =
      Add(Reshape(Cast(starts, DType::kI64), {-1, 1}), Range(*starts.graph(), shape[axis]));
  if (options.around) {
    const auto size = static_cast<double>(cache.shape()[axis]);
    places = Mod(places, Constant(*starts.graph(), size, {.dtype = DType::kI64}));
  }
  Shape dims(std::vector<int64_t>(shape.rank(), 1));
  dims[0] = shape[0];
  dims[axis] = shape[axis];
  return ScatterElements(cache, BroadcastTo(Reshape(places, dims), shape), update,
                         {.axis = options.axis});
}

Tensor ScaledProducts(Tensor q, Tensor k, std::optional<double> scale) {
  const Shape shape = q.shape();
  const double factor =
      scale ? *scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, shape[3])));
  // Both by its root, as the standard has it: products of narrow types stay finite.
  const double root = std::sqrt(std::abs(factor));
  const Tensor products = MatMul(Scale(ByKvHead(q, k.shape()[1]), factor < 0 ? -root : root),
                                 Scale(k, root), {.transpose_b = true});
  return Reshape(products, {shape[0], shape[1], shape[2], k.shape()[2]});
}

Tensor WeighValues(Tensor weights, Tensor v) {
  const Shape shape = weights.shape();
  return Reshape(MatMul(ByKvHead(weights, v.shape()[1]), v),
                 {shape[0], shape[1], shape[2], v.shape()[3]});
}

absl::Status CheckHeads(const Shape& q, const Shape& k, const Shape& v) {
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q[0] == k[0] &&
                    q[3] == k[3] && k[0] == v[0] && k[1] == v[1] && k[2] == v[2] && k[1] > 0 &&
                    q[1] % k[1] == 0;
  if (fits) return absl::OkStatus();
  return Wrong(absl::StrCat("queries are ", q.ToString(), ", keys ", k.ToString(), ", values ",
                            v.ToString(), " = [batch, heads, time, depth]; they do not fit"));
}

absl::StatusOr<Attended> Attend(Tensor q, Tensor k, Tensor v, const AttendOptions& options) {
  if (q.graph() != nullptr) BRAID_RETURN_IF_ERROR(q.graph()->status());
  BRAID_RETURN_IF_ERROR(CheckHeads(q.shape(), k.shape(), v.shape()));
  if (IsFused(q, options)) {
    Tensor mask = options.seen;
    if (!options.added.is_none()) {
      mask = mask.is_none() ? options.added
                            : Where(mask, options.added, Unseen(*q.graph(), q.dtype()));
    }
    return Attended{.y = DotProductAttention(
                        q, k, v, {.mask = mask, .causal = options.causal, .scale = options.scale})};
  }
  AttendOptions all = options;
  if (options.causal) {
    const int64_t queries = q.shape()[2], keys = k.shape()[2];
    all.seen = Both(SeenIn({.graph = *q.graph(),
                            .queries = queries,
                            .keys = keys,
                            .offset = keys - queries,
                            .right = 0}),
                    options.seen);
  }
  const Tensor products = ScaledProducts(q, k, options.scale);
  const Tensor capped = options.softcap == 0
                            ? products
                            : Scale(Tanh(Scale(products, 1 / options.softcap)), options.softcap);
  Masked masked = ApplyMask(capped, all);
  const Tensor masked_scores = masked.scores;
  masked.scores = Cast(masked.scores, options.softmax.value_or(q.dtype()));
  const Tensor weights = Cast(Weights(masked, options), q.dtype());
  const Tensor y = WeighValues(weights, v);
  switch (options.scores) {
    case ScoresOutput::kNone:
      return Attended{.y = y};
    case ScoresOutput::kProducts:
      return Attended{.y = y, .scores = products};
    case ScoresOutput::kCapped:
      return Attended{.y = y, .scores = capped};
    case ScoresOutput::kMasked:
      return Attended{.y = y, .scores = masked_scores};
    case ScoresOutput::kWeights:
      return Attended{.y = y, .scores = weights};
  }
  return Attended{.y = y};
}

Tensor Rotate(Tensor x, const Angles& angles) {
  const Shape shape = x.shape(), table = angles.cosines.shape();
  if (!x.valid() || !angles.cosines.valid() || table.rank() != 3) return x;
  const int64_t batch = shape[0], heads = shape[1], time = shape[2], pairs = table[2];
  const Tensor cosines = ExpandDims(Cast(angles.cosines, x.dtype()), 1);
  const Tensor sines = ExpandDims(Cast(angles.sines, x.dtype()), 1);
  const int64_t depth = 2 * pairs;
  Tensor turned = depth == shape[3] ? x : SliceAxis(x, 3, {.end = depth});
  // The two of each pair on an axis of their own.
  const int64_t axis = angles.interleaved ? 4 : 3;
  turned = Reshape(turned, angles.interleaved ? Shape{batch, heads, time, pairs, 2}
                                              : Shape{batch, heads, time, 2, pairs});
  const Tensor a = Squeeze(SliceAxis(turned, axis, {.end = 1}), axis);
  const Tensor b = Squeeze(SliceAxis(turned, axis, {.begin = 1}), axis);
  const Tensor turned_a = Sub(Mul(a, cosines), Mul(b, sines));
  const Tensor turned_b = Add(Mul(a, sines), Mul(b, cosines));
  turned = Reshape(Concat({ExpandDims(turned_a, axis), ExpandDims(turned_b, axis)}, axis),
                   {batch, heads, time, depth});
  if (depth == shape[3]) return turned;
  return Concat({turned, SliceAxis(x, 3, {.begin = depth})}, 3);
}

}  // namespace braid::onnx
