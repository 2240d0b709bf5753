// Attention as ONNX Runtime's optimizers and exporters write it: operators of its domain
// com.microsoft.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/attend.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

std::optional<double> ScaleUnlessZero(const NodeView& n) {
  const double scale = n.Float("scale", 0);
  return scale != 0 ? std::optional(scale) : std::nullopt;
}

// Part `index` of axis `axis`, without it.
Tensor At(Tensor x, int64_t axis, int64_t index) {
  return Squeeze(SliceAxis(x, axis, {.begin = index, .end = index + 1}), axis);
}

struct Extents {
  int64_t batch = 0, queries = 0, keys = 0;
};

// True at what is no padding, of the forms that a mask of integers has: lengths [batch]; ends and
// starts [2 * batch]; 0 at padding, [batch, keys] or [batch, queries, keys].
absl::StatusOr<Tensor> UnpaddedKeys(const NodeView& n, int input, const Extents& extents) {
  const auto [batch, queries, keys] = extents;
  const Tensor mask = Cast(n.in(input), DType::kI64);
  const Shape shape = n.shape(input);
  if (shape == Shape{batch}) return SeenBefore(mask, keys);
  if (shape == Shape{2 * batch}) {
    const Tensor starts = SliceAxis(mask, 0, {.begin = batch});
    return Both(SeenBefore(SliceAxis(mask, 0, {.end = batch}), keys),
                LogicalNot(SeenBefore(starts, keys)));
  }
  const Tensor seen = NotEqual(mask, Constant(n.graph(), 0, {.dtype = DType::kI64}));
  if (shape == Shape{batch, keys}) return Reshape(seen, {batch, 1, 1, keys});
  if (shape == Shape{batch, queries, keys}) return Reshape(seen, {batch, 1, queries, keys});
  return Lacking(absl::StrCat("a mask ", shape.ToString(), " of a batch of ", batch, " with ",
                              queries, " queries and ", keys, " keys"));
}

// Adds a filter value to the scores of padding, and a bias to all. Padding is not excluded: a query
// that sees nothing else gets its mean.
absl::Status ReadPaddingAndBias(const NodeView& n, int mask, int bias, const Extents& extents,
                                AttendOptions& options) {
  const double filter = n.Float("mask_filter_value", -10000);
  if (n.HasInput(mask)) {
    BRAID_ASSIGN_OR_RETURN(const Tensor seen, UnpaddedKeys(n, mask, extents));
    const auto number = [&](double value) {
      return Constant(n.graph(), value, {.dtype = n.dtype(0)});
    };
    options.added = Where(seen, number(0), number(filter));
  }
  if (n.HasInput(bias)) {
    const Tensor term = n.in(bias);
    options.added = options.added.is_none() ? term : Add(options.added, term);
  }
  return absl::OkStatus();
}

// Queries and keys end together. Where they do not, ONNX Runtime lets the last query see all keys,
// which is hardly meant.
absl::Status ReadDirection(const NodeView& n, const Extents& extents, int64_t past,
                           AttendOptions& options) {
  options.causal = n.Flag("unidirectional");
  if (!options.causal || extents.keys - extents.queries == past) return absl::OkStatus();
  return Lacking("unidirectional attention to another number of keys than queries");
}

// input, weights of all projections, bias, mask, past keys and values, bias of the scores.
absl::StatusOr<Tensors> TranslateFusedAttention(const NodeView& n) {
  constexpr int kBias = 2, kMaskIndex = 3, kPast = 4, kScoresBias = 5;
  if (n.Flag("do_rotary")) return Lacking("do_rotary");
  n.Ignore("rotary_embedding_dim");
  if (n.Flag("past_present_share_buffer") || n.HasInput(6)) {
    return Lacking("a cache whose buffer outputs share with inputs");
  }
  if (n.rank(0) != 3 || n.rank(1) != 2) return Wrong("input of three axes, weights of two needed");
  const int64_t heads = n.Int("num_heads", 0), columns = n.shape(1)[1];
  const Ints sizes = n.List("qkv_hidden_sizes").value_or(Ints(3, columns / 3));
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != columns) {
    return Wrong(absl::StrCat("qkv_hidden_sizes do not add up to the weights' ", columns));
  }
  Tensor projected = MatMul(n.in(0), n.in(1));
  if (n.HasInput(kBias)) projected = Add(projected, n.in(kBias));
  const Tensors parts = Split(projected, sizes, -1);
  if (parts.size() != 3) return n.graph().status();
  BRAID_ASSIGN_OR_RETURN(const Tensor q, SplitHeads(parts[0], heads));
  BRAID_ASSIGN_OR_RETURN(Tensor k, SplitHeads(parts[1], heads));
  BRAID_ASSIGN_OR_RETURN(Tensor v, SplitHeads(parts[2], heads));
  int64_t past = 0;
  if (n.HasInput(kPast)) {
    past = n.shape(kPast)[3];
    k = Concat({At(n.in(kPast), 0, 0), k}, 2);
    v = Concat({At(n.in(kPast), 0, 1), v}, 2);
  }
  const Extents extents = {q.shape()[0], q.shape()[2], k.shape()[2]};
  AttendOptions options = {.scale = ScaleUnlessZero(n)};
  BRAID_RETURN_IF_ERROR(ReadPaddingAndBias(n, kMaskIndex, kScoresBias, extents, options));
  BRAID_RETURN_IF_ERROR(ReadDirection(n, extents, past, options));
  BRAID_ASSIGN_OR_RETURN(const Attended attended, Attend(q, k, v, options));
  Tensor present;
  if (n.HasOutput(1)) present = Concat({ExpandDims(k, 0), ExpandDims(v, 0)}, 0);
  return Tensors{MergeHeads(attended.y), present};
}

// query, key and value [batch, time, heads * depth], from the forms in which files have them.
struct Projections {
  Tensor q, k, v;
  bool are_split = false;  // k and v are [batch, heads, time, depth] already
};

absl::StatusOr<Projections> ReadProjections(const NodeView& n) {
  // [batch, time, heads, of so many, depth], one of them.
  const auto packed = [&](int input, int64_t index) {
    const Shape shape = n.shape(input);
    return Reshape(At(n.in(input), 3, index), {shape[0], shape[1], shape[2] * shape[4]});
  };
  if (n.rank(0) == 5) {
    if (n.HasInput(1) || n.HasInput(2)) return Wrong("a packed query has key and value in it");
    return Projections{packed(0, 0), packed(0, 1), packed(0, 2)};
  }
  if (!n.HasInput(1)) return Wrong("the key is missing");
  if (n.rank(1) == 5) return Projections{n.in(0), packed(1, 0), packed(1, 1)};
  if (!n.HasInput(2)) return Wrong("the value is missing");
  return Projections{n.in(0), n.in(1), n.in(2), n.rank(1) == 4};
}

// query, key, value, bias of all three, mask, bias of the scores, past key and value.
absl::StatusOr<Tensors> TranslateMultiHeadAttention(const NodeView& n) {
  constexpr int kBias = 3, kMaskIndex = 4, kScoresBias = 5, kPastKeys = 6, kPastValues = 7;
  if (n.HasInput(8)) return Lacking("a cache whose buffer outputs share with inputs");
  if (n.HasInput(9)) return Lacking("a cache of beams");
  const int64_t heads = n.Int("num_heads", 0);
  BRAID_ASSIGN_OR_RETURN(Projections all, ReadProjections(n));
  if (n.HasInput(kBias)) {
    const int64_t q_size = all.q.shape()[2], k_size = all.are_split ? q_size : all.k.shape()[2];
    const auto part = [&](int64_t begin, std::optional<int64_t> end) {
      return SliceAxis(n.in(kBias), 0, {.begin = begin, .end = end});
    };
    all.q = Add(all.q, part(0, q_size));
    if (!all.are_split) {
      all.k = Add(all.k, part(q_size, q_size + k_size));
      all.v = Add(all.v, part(q_size + k_size, std::nullopt));
    }
  }
  BRAID_ASSIGN_OR_RETURN(const Tensor q, SplitHeads(all.q, heads));
  Tensor k = all.k, v = all.v;
  if (!all.are_split) {
    BRAID_ASSIGN_OR_RETURN(k, SplitHeads(k, heads));
    BRAID_ASSIGN_OR_RETURN(v, SplitHeads(v, heads));
  }
  if (n.HasInput(kPastKeys) != n.HasInput(kPastValues)) {
    return Wrong("past_key and past_value belong together");
  }
  int64_t past = 0;
  if (n.HasInput(kPastKeys)) {
    past = n.shape(kPastKeys)[2];
    k = Concat({n.in(kPastKeys), k}, 2);
    v = Concat({n.in(kPastValues), v}, 2);
  }
  const Extents extents = {q.shape()[0], q.shape()[2], k.shape()[2]};
  AttendOptions options = {.scale = ScaleUnlessZero(n)};
  BRAID_RETURN_IF_ERROR(ReadPaddingAndBias(n, kMaskIndex, kScoresBias, extents, options));
  BRAID_RETURN_IF_ERROR(ReadDirection(n, extents, past, options));
  BRAID_ASSIGN_OR_RETURN(const Attended attended, Attend(q, k, v, options));
  return Tensors{MergeHeads(attended.y), k, v};
}

// Rows `places` [batch, time] of tables of cosines and sines.
Angles AnglesAt(Tensor cosines, Tensor sines, Tensor places) {
  return {.cosines = Gather(cosines, places), .sines = Gather(sines, places)};
}

// [batch, time]: starts [batch] and the steps after them.
Tensor PlacesFrom(Tensor starts, int64_t time) {
  if (!starts.valid()) return starts;
  return Add(Reshape(Cast(starts, DType::kI64), {-1, 1}), Range(*starts.graph(), time));
}

// x, positions, tables of cosines and sines.
absl::StatusOr<Tensors> TranslateRotary(const NodeView& n) {
  if (n.Flag("is_packed_batching")) return Lacking("is_packed_batching");
  if (n.Float("scale", 1) != 1) return Lacking("a scale of the positions");
  int64_t heads = n.Int("num_heads", 0);
  const int64_t turned = n.Int("rotary_embedding_dim", 0);
  if (n.rank(2) != 2 || n.shape(2) != n.shape(3)) return Wrong("tables of two axes are needed");
  const int64_t pairs = n.shape(2)[1];
  const bool is_merged = n.rank() == 3;
  Tensor x = n.in(0);
  if (is_merged) {
    // The tables' width tells that of a head, if all of it is turned.
    if (turned == 0 && pairs > 0) heads = n.shape()[2] / (2 * pairs);
    BRAID_ASSIGN_OR_RETURN(x, SplitHeads(x, heads));
  }
  const Shape shape = x.shape();
  if (shape.rank() != 4 || 2 * pairs != (turned > 0 ? turned : shape[3]) || 2 * pairs > shape[3]) {
    return Wrong(absl::StrCat("x is ", shape.ToString(), ", the tables ", n.shape(2).ToString(),
                              "; they do not fit"));
  }
  const Tensor places = n.shape(1) == Shape{1} ? PlacesFrom(n.in(1), shape[2]) : n.in(1);
  Angles angles = AnglesAt(n.in(2), n.in(3), places);
  angles.interleaved = n.Flag("interleaved");
  const Tensor y = Rotate(x, angles);
  return Tensors{is_merged ? MergeHeads(y) : y};
}

// ---- GroupQueryAttention ------------------------------------------------------------------------

// Its inputs behind query, key and value.
constexpr int kCachedKeys = 3, kCachedValues = 4, kLastPlaces = 5, kTotal = 6, kCosines = 7,
              kSines = 8, kPlaceIds = 9, kGroupBias = 10, kSink = 11;

// What Braid does not have of it.
absl::Status CheckGroupQuery(const NodeView& n) {
  for (int needed : {kLastPlaces, kTotal}) {
    if (!n.HasInput(needed)) return Wrong(absl::StrCat("input ", needed, " is missing"));
  }
  const bool is_quantized = n.Text("k_quant_type", "NONE") != "NONE" ||
                            n.Text("v_quant_type", "NONE") != "NONE" ||
                            n.Int("kv_cache_bit_width", 0) != 0 || n.HasInput(12) || n.HasInput(13);
  if (is_quantized) return Lacking("a cache of quantized keys and values");
  for (const char* unused : {"qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"}) {
    n.Ignore(unused);
  }
  if (n.HasInput(14) || n.HasInput(15)) return Lacking("weights that normalize queries and keys");
  if (n.HasInput(16)) return Lacking("query_seqlens: padded parts of a prompt");
  if (n.Flag("sliding_window_cache")) return Lacking("sliding_window_cache");
  if (n.Int("qk_output", 0) != 0) return Lacking("qk_output: scores as an output");
  if (n.HasInput(kCachedKeys) != n.HasInput(kCachedValues)) {
    return Wrong("past_key and past_value belong together");
  }
  return absl::OkStatus();
}

// Where the tokens of this step stand.
struct Step {
  int64_t queries = 0;
  int64_t keys = 0;        // of the cache behind it
  bool is_prompt = false;  // nothing stands before them
  Tensor starts = {};      // i64 [batch]: of the first one
};

absl::StatusOr<Step> ReadStep(const NodeView& n, const Shape& q) {
  BRAID_ASSIGN_OR_RETURN(const int64_t total, n.KnownInt(kTotal));
  Step step = {.queries = q[2], .keys = std::max(total, q[2]), .is_prompt = total == q[2]};
  if (n.HasInput(kCachedKeys)) step.keys = std::max(step.keys, n.shape(kCachedKeys)[2]);
  if (total > q[2] && !n.HasInput(kCachedKeys)) {
    return Wrong(absl::StrCat("of ", total, " tokens ", q[2], " are new, and there is no cache"));
  }
  if (n.shape(kLastPlaces).num_elements() != q[0]) return Wrong("seqlens_k is not [batch]");
  // seqlens_k are the places of the last ones.
  const Tensor last = Reshape(Cast(n.in(kLastPlaces), DType::kI64), {q[0]});
  step.starts = step.is_prompt ? Constant(n.graph(), 0, {.dtype = DType::kI64, .shape = {q[0]}})
                               : Shifted(last, 1 - q[2]);
  return step;
}

// The cache of input `past`, if there is one, with the rows of this step.
Tensor Append(const NodeView& n, int past, Tensor rows, const Step& step) {
  if (!n.HasInput(past)) return rows;
  const int64_t missing = step.keys - n.shape(past)[2];
  Tensor cache = n.in(past);
  if (step.is_prompt) {
    if (step.keys == step.queries) return rows;
    return Concat({rows, SliceAxis(cache, 2, {.begin = step.queries})}, 2);
  }
  if (missing > 0) cache = Pad(cache, {0, 0, 0, 0}, {0, 0, missing, 0});
  return PutAt(cache, rows, step.starts, {.axis = 2});
}

absl::StatusOr<Angles> ReadAngles(const NodeView& n, const Step& step) {
  if (!n.HasInput(kCosines) || !n.HasInput(kSines)) return Wrong("do_rotary needs tables");
  Tensor places = PlacesFrom(step.starts, step.queries);
  if (n.HasInput(kPlaceIds)) {
    // Of a prompt only the first one counts.
    places = n.in(kPlaceIds);
    if (step.is_prompt) {
      const Tensor first = SliceAxis(Reshape(places, {-1}), 0, {.end = 1});
      places = BroadcastTo(PlacesFrom(first, step.queries), n.shape(kPlaceIds));
    }
  }
  Angles angles = AnglesAt(n.in(kCosines), n.in(kSines), places);
  angles.interleaved = n.Flag("rotary_interleaved");
  return angles;
}

absl::Status ReadGroupMask(const NodeView& n, const Step& step, AttendOptions& options) {
  const int64_t window = n.Int("local_window_size", -1);
  if (!n.Flag("causal", true)) {
    if (window > 0) return Wrong("local_window_size needs causal");
    const Tensor last = Reshape(Cast(n.in(kLastPlaces), DType::kI64), {-1});
    options.seen = SeenBefore(Shifted(last, 1), step.keys);
  } else if (step.is_prompt && step.keys == step.queries && window <= 0) {
    options.causal = true;
  } else {
    Window seen = {.graph = n.graph(), .queries = step.queries, .keys = step.keys, .right = 0};
    if (!step.is_prompt) seen.offsets = step.starts;
    if (window > 0) seen.left = window - 1;  // the query's own place is one of them
    options.seen = SeenIn(seen);
  }
  if (n.HasInput(kGroupBias)) {
    const int64_t missing = step.keys - n.shape(kGroupBias)[3];
    options.added = n.in(kGroupBias);
    if (missing > 0) options.added = Pad(options.added, {0, 0, 0, 0}, {0, 0, 0, missing});
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> TranslateGroupQueryAttention(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckGroupQuery(n));
  const int64_t heads = n.Int("num_heads", 0), kv_heads = n.Int("kv_num_heads", 0);
  Tensors parts = {n.in(0), n.in(1), n.in(2)};
  if (!n.HasInput(1)) {
    const int64_t columns = n.shape()[2], all = heads + 2 * kv_heads;
    if (n.rank() != 3 || all < 1 || columns % all != 0) {
      return Wrong(absl::StrCat(n.shape().ToString(), " of ", heads, " and ", kv_heads, " heads"));
    }
    const int64_t depth = columns / all;
    parts = Split(n.in(0), {heads * depth, kv_heads * depth, kv_heads * depth}, -1);
  }
  if (parts.size() != 3 || (n.HasInput(1) && !n.HasInput(2))) return Wrong("the value is missing");
  BRAID_ASSIGN_OR_RETURN(Tensor q, SplitHeads(parts[0], heads));
  BRAID_ASSIGN_OR_RETURN(Tensor k, SplitHeads(parts[1], kv_heads));
  BRAID_ASSIGN_OR_RETURN(Tensor v, SplitHeads(parts[2], kv_heads));
  BRAID_ASSIGN_OR_RETURN(const Step step, ReadStep(n, q.shape()));
  if (k.shape()[2] != step.queries) return Wrong("as many keys as queries are needed");
  if (n.Flag("do_rotary")) {
    BRAID_ASSIGN_OR_RETURN(const Angles angles, ReadAngles(n, step));
    q = Rotate(q, angles);
    k = Rotate(k, angles);
  } else {
    n.Ignore("rotary_interleaved");
  }
  k = Append(n, kCachedKeys, k, step);
  v = Append(n, kCachedValues, v, step);
  AttendOptions options = {.scale = ScaleUnlessZero(n), .softcap = n.Float("softcap", 0)};
  BRAID_RETURN_IF_ERROR(ReadGroupMask(n, step, options));
  if (n.HasInput(kSink)) {
    options.sinks = n.in(kSink);
  } else if (n.Int("smooth_softmax", -1) > 0) {
    options.sinks = Constant(n.graph(), 0, {.dtype = n.dtype(0), .shape = {heads}});
  }
  n.Ignore("smooth_softmax");  // with a sink it is smooth
  BRAID_ASSIGN_OR_RETURN(const Attended attended, Attend(q, k, v, options));
  return Tensors{MergeHeads(attended.y), k, v};
}

}  // namespace

void AddMicrosoftAttention(Translators& all) {
  all.Add("com.microsoft.Attention", {2, 7}, TranslateFusedAttention);
  all.Add("com.microsoft.MultiHeadAttention", {1, 10}, TranslateMultiHeadAttention);
  all.Add("com.microsoft.RotaryEmbedding", {4, 4}, TranslateRotary);
  all.Add("com.microsoft.GroupQueryAttention", {1, 17}, TranslateGroupQueryAttention);
}

}  // namespace braid::onnx
