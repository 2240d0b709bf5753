// Attention of the standard, and what models put around it: rotary embeddings, caches of keys and
// values, scores that graphs of the model change.
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/attend.h"
#include "api/onnx/onnx.pb.h"
#include "api/onnx/tensor_proto.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr int kMask = 3, kPastKey = 4, kPastValue = 5, kLengths = 6;

absl::StatusOr<std::optional<DType>> SoftmaxType(const NodeView& n) {
  if (!n.Has("softmax_precision")) return std::optional<DType>();
  BRAID_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(n.Int("softmax_precision", 0)));
  if (!IsFloating(dtype)) return Wrong("softmax_precision is no floating type");
  return std::optional(dtype);
}

std::optional<double> GivenScale(const NodeView& n) {
  return n.Has("scale") ? std::optional(n.Float("scale", 1)) : std::nullopt;
}

// Into options.seen or options.added: as long as the keys.
absl::Status ReadMask(const NodeView& n, int64_t keys, AttendOptions& options) {
  if (!n.HasInput(kMask)) return absl::OkStatus();
  const bool is_bool = n.dtype(kMask) == DType::kBool;
  if (!is_bool && !IsFloating(n.dtype(kMask))) return Lacking("a mask of integers");
  Tensor mask = n.in(kMask);
  const int rank = n.rank(kMask);
  const int64_t missing = rank > 0 ? keys - n.shape(kMask)[rank - 1] : 0;
  if (missing > 0) {
    Ints before(rank, 0), after(rank, 0);
    after.back() = missing;
    mask =
        Pad(mask, before, after, {.value = is_bool ? 0 : -std::numeric_limits<double>::infinity()});
  }
  if (is_bool) {
    options.seen = mask;
  } else {
    options.added = Cast(mask, n.dtype(0));
  }
  return absl::OkStatus();
}

absl::StatusOr<ScoresOutput> WantedScores(const NodeView& n) {
  const int64_t mode = n.Int("qk_matmul_output_mode", 0);
  if (!n.HasOutput(3)) return ScoresOutput::kNone;
  switch (mode) {
    case 0:
      return ScoresOutput::kProducts;
    case 1:
      return ScoresOutput::kCapped;
    case 2:
      return ScoresOutput::kMasked;
    case 3:
      return ScoresOutput::kWeights;
    default:
      return Wrong(absl::StrCat("qk_matmul_output_mode is ", mode, "; 0 .. 3 is needed"));
  }
}

// Which keys the queries see by their places.
absl::Status ReadWindow(const NodeView& n, const Shape& q, const Shape& k, AttendOptions& options) {
  const int64_t left = n.Int("left_window_size", -1), right = n.Int("right_window_size", -1);
  if (left < -1 || right < -1) {
    return Wrong(absl::StrCat("the window's sizes are ", left, " and ", right));
  }
  const bool is_causal = n.Flag("is_causal");
  Window window = {.graph = n.graph(), .queries = q[2], .keys = k[2]};
  if (n.HasInput(kPastKey)) window.offset = n.shape(kPastKey)[2];
  if (n.HasInput(kLengths)) {
    const Tensor lengths = Cast(n.in(kLengths), DType::kI64);
    window.offsets = Shifted(lengths, -q[2]);
    options.seen = Both(options.seen, SeenBefore(lengths, k[2]));
  }
  const bool end_together = !n.HasInput(kLengths) && window.offset == k[2] - q[2];
  options.causal = is_causal && end_together && left < 0;
  if (options.causal) return absl::OkStatus();
  if (left >= 0) window.left = left;
  if (right >= 0) window.right = right;
  if (is_causal) window.right = 0;
  options.seen = Both(options.seen, SeenIn(window));
  return absl::OkStatus();
}

absl::StatusOr<Tensors> TranslateAttention(const NodeView& n) {
  Tensor q = n.in(0), k = n.in(1), v = n.in(2);
  const int64_t q_heads = n.Int("q_num_heads", 0), kv_heads = n.Int("kv_num_heads", 0);
  const bool is_merged = n.rank() == 3;
  if (is_merged) {
    BRAID_ASSIGN_OR_RETURN(q, SplitHeads(q, q_heads));
    BRAID_ASSIGN_OR_RETURN(k, SplitHeads(k, kv_heads));
    BRAID_ASSIGN_OR_RETURN(v, SplitHeads(v, kv_heads));
  }
  if (n.HasInput(kPastKey) != n.HasInput(kPastValue) ||
      (n.HasInput(kPastKey) && n.HasInput(kLengths))) {
    return Wrong("past_key and past_value belong together, and nonpad_kv_seqlen to neither");
  }
  if (n.HasInput(kPastKey)) {
    k = Concat({n.in(kPastKey), k}, 2);
    v = Concat({n.in(kPastValue), v}, 2);
  }
  AttendOptions options = {.scale = GivenScale(n), .softcap = n.Float("softcap", 0)};
  BRAID_ASSIGN_OR_RETURN(options.softmax, SoftmaxType(n));
  BRAID_ASSIGN_OR_RETURN(options.scores, WantedScores(n));
  BRAID_RETURN_IF_ERROR(n.graph().status());
  BRAID_RETURN_IF_ERROR(CheckHeads(q.shape(), k.shape(), v.shape()));
  BRAID_RETURN_IF_ERROR(ReadMask(n, k.shape()[2], options));
  BRAID_RETURN_IF_ERROR(ReadWindow(n, q.shape(), k.shape(), options));
  BRAID_ASSIGN_OR_RETURN(const Attended attended, Attend(q, k, v, options));
  return Tensors{is_merged ? MergeHeads(attended.y) : attended.y, k, v, attended.scores};
}

// x, tables of cosines and sines, and places in them; without places the tables have them.
absl::StatusOr<Tensors> TranslateRotaryEmbedding(const NodeView& n) {
  Angles angles = {.cosines = n.in(1), .sines = n.in(2), .interleaved = n.Flag("interleaved")};
  const int64_t heads = n.Int("num_heads", 0), turned = n.Int("rotary_embedding_dim", 0);
  if (n.HasInput(3)) {
    angles.cosines = Gather(angles.cosines, n.in(3));
    angles.sines = Gather(angles.sines, n.in(3));
  }
  Tensor x = n.in(0);
  const bool is_merged = n.rank() == 3;
  if (is_merged) {
    BRAID_ASSIGN_OR_RETURN(x, SplitHeads(x, heads));
  }
  const Shape shape = x.shape(), table = angles.cosines.shape();
  const int64_t depth = turned > 0 ? turned : shape[3];
  if (shape.rank() != 4 || table.rank() != 3 || 2 * table[2] != depth || depth > shape[3]) {
    return Wrong(absl::StrCat("x is ", shape.ToString(), ", the cosines are ", table.ToString(),
                              "; they do not fit to turn ", depth, " elements of each row"));
  }
  const Tensor y = Rotate(x, angles);
  return Tensors{is_merged ? MergeHeads(y) : y};
}

// A cache, what is put into it, and from where on in each of the batch.
absl::StatusOr<Tensors> TranslateTensorScatter(const NodeView& n) {
  const std::string mode = n.Text("mode", "linear");
  if (mode != "linear" && mode != "circular") return Wrong(absl::StrCat("mode is '", mode, "'"));
  BRAID_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("axis", -2));
  Shape whole = n.shape(1);
  if (axis > 0) whole[static_cast<int>(axis)] = n.shape()[static_cast<int>(axis)];
  const int64_t size = n.shape(1)[static_cast<int>(axis)];
  if (axis == 0 || whole != n.shape() || size > n.shape()[static_cast<int>(axis)]) {
    return Wrong(absl::StrCat("the cache is ", n.shape().ToString(), ", the update ",
                              n.shape(1).ToString(), "; it does not fit on axis ", axis));
  }
  if (!n.HasInput(2)) {
    return Tensors{Concat({n.in(1), SliceAxis(n.in(0), axis, {.begin = size})}, axis)};
  }
  return Tensors{PutAt(n.in(0), n.in(1), n.in(2), {.axis = axis, .around = mode == "circular"})};
}

// The result of a graph of the node's for `scores`, or these if it has none of that name.
absl::StatusOr<Value> ChangedBy(const NodeView& n, const char* name, Value scores) {
  if (!n.Has(name)) return scores;
  BRAID_ASSIGN_OR_RETURN(const GraphProto* graph, n.Graph(name));
  const TensorType type = scores.type();
  BRAID_ASSIGN_OR_RETURN(std::vector<Value> changed,
                         n.surroundings().RunGraph(*graph, {std::move(scores)}));
  if (changed.size() == 1 && changed[0].is_tensor() && changed[0].type() == type) {
    return std::move(changed[0]);
  }
  return Wrong(absl::StrCat(name, " does not make one tensor of its input's type"));
}

absl::StatusOr<std::vector<Value>> TranslateFlexAttention(const NodeView& n) {
  for (int i = 0; i < 3; ++i) {
    if (!n.value(i).is_tensor()) return Wrong(absl::StrCat("input ", i, " is no tensor"));
  }
  BRAID_RETURN_IF_ERROR(CheckHeads(n.shape(0), n.shape(1), n.shape(2)));
  const std::optional<double> scale = GivenScale(n);
  BRAID_ASSIGN_OR_RETURN(const std::optional<DType> wanted, SoftmaxType(n));
  const DType dtype = wanted.value_or(n.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
  Surroundings& around = n.surroundings();
  if (!n.Has("score_mod") && !n.Has("prob_mod")) {
    return around.Compute({n.value(0), n.value(1), n.value(2)},
                          [=](const NodeView& inner) -> absl::StatusOr<Tensors> {
                            BRAID_ASSIGN_OR_RETURN(const Attended attended,
                                                   Attend(inner.in(0), inner.in(1), inner.in(2),
                                                          {.scale = scale, .softmax = dtype}));
                            return Tensors{attended.y};
                          });
  }
  BRAID_ASSIGN_OR_RETURN(std::vector<Value> scores,
                         around.Compute({n.value(0), n.value(1)}, [=](const NodeView& in) {
                           return Tensors{Cast(ScaledProducts(in.in(0), in.in(1), scale), dtype)};
                         }));
  BRAID_ASSIGN_OR_RETURN(Value changed, ChangedBy(n, "score_mod", std::move(scores[0])));
  BRAID_ASSIGN_OR_RETURN(std::vector<Value> weights,
                         around.Compute({std::move(changed)}, [](const NodeView& inner) {
                           return Tensors{Softmax(inner.in(0))};
                         }));
  BRAID_ASSIGN_OR_RETURN(changed, ChangedBy(n, "prob_mod", std::move(weights[0])));
  return around.Compute({std::move(changed), n.value(2)}, [=](const NodeView& inner) {
    return Tensors{Cast(WeighValues(inner.in(0), Cast(inner.in(1), dtype)), inner.dtype(1))};
  });
}

}  // namespace

void AddAttention(Translators& all) {
  all.Add("Attention", {3, 7}, TranslateAttention);
  all.Add("RotaryEmbedding", {3, 4}, TranslateRotaryEmbedding);
  all.Add("TensorScatter", {2, 3}, TranslateTensorScatter);
  all.AddValues("ai.onnx.preview.FlexAttention", {3, 3}, TranslateFlexAttention);
}

}  // namespace braid::onnx
