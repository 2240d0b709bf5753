// Attention without a softmax, whose keys and values are summed up in a state of a fixed size, and
// the short convolution that models put in front of it.
//
// Step i of a head brings the state S [depth, value depth] to S_i = e^g_i S_(i-1) + k_i u_i^T and
// reads o_i = S_i^T q_i. u_i is v_i or, by the delta rule, beta_i (v_i - (e^g_i S_(i-1))^T k_i).
// Steps are taken in chunks, each by products of matrices: with G_i the sum of g over the chunk's
// steps up to i, and <a_i, k_j> = sum over the depth of a_i k_j e^(G_i - G_j),
//   o_i = (a_i e^G_i)^T S + sum over j <= i of <q_i, k_j> u_j, and by the delta rule
//   u_i = beta_i (v_i - (k_i e^G_i)^T S - sum over j < i of <k_i, k_j> u_j),
// a triangular system for u. Yang et al., "Parallelizing Linear Transformers with the Delta Rule
// over Sequence Length", arXiv 2406.06484.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

constexpr int64_t kChunk = 64;
// Where elements of a key decay differently, e^(G_i - G_j) is a tensor with the depth, too.
constexpr int64_t kChunkOfDepth = 16;
constexpr int kTime = 3;
constexpr int kPairRank = 6;  // of decays that differ along the depth

// All are [batch, key heads, group, time, size]: a group of query heads shares a state, and all
// but q has a group of 1. decay has a size of 1 or of the depth, beta one of 1.
struct Steps {
  Tensor q, k, v;
  Tensor decay = {}, beta = {};  // or none

  Steps Part(int64_t begin, int64_t end) const {
    const auto part = [=](Tensor x) {
      return x.is_none() ? x : SliceAxis(x, kTime, {.begin = begin, .end = end});
    };
    return {part(q), part(k), part(v), part(decay), part(beta)};
  }
};

Tensor SwapLast(Tensor x) {
  const int rank = x.shape().rank();
  Ints perm(rank);
  for (int i = 0; i < rank; ++i) perm[i] = i;
  if (rank > 1) std::swap(perm[rank - 1], perm[rank - 2]);
  return Transpose(x, perm);
}

// e^(G_i - G_j) for i >= j, else 1: [.., time, time], behind an axis of the depth if its elements
// decay differently. Sums of the steps from j to i: differences of the G would have lost their
// digits where much has decayed.
Tensor PairDecays(Tensor decay) {
  const Tensor column = decay.shape()[4] > 1 ? ExpandDims(SwapLast(decay), -1) : decay;
  Shape pairs = column.shape();
  pairs[pairs.rank() - 1] = pairs[pairs.rank() - 2];
  return Exp(CumSum(Tril(BroadcastTo(column, pairs), -1), -2));
}

// <a_i, k_j> for all i and j; those above the diagonal mean nothing. `decays` are those of the
// pairs, or none.
Tensor DecayedProducts(Tensor a, Tensor k, Tensor decays) {
  if (decays.shape().rank() == kPairRank) {
    const Tensor columns = ExpandDims(SwapLast(a), -1), rows = ExpandDims(SwapLast(k), -2);
    return ReduceSum(Mul(Mul(columns, decays), rows), {.axes = {3}});
  }
  const Tensor products = MatMul(a, k, {.transpose_b = true});
  return decays.is_none() ? products : Mul(products, decays);
}

// 1 where the lower blocks of `size` rows stand left of the diagonal's, in pairs of blocks.
Tensor LowerBlocks(LogicalGraph& graph, TensorType type, int64_t size) {
  const int64_t n = type.shape[0];
  Ints elements(n * n, std::bit_cast<int64_t>(0.0));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const bool is_in_pair = i / (2 * size) == j / (2 * size);
      if (is_in_pair && i / size > j / size) elements[i * n + j] = std::bit_cast<int64_t>(1.0);
    }
  }
  return Literal(graph, std::move(type), std::move(elements));
}

// x of (I + lower) x = y; `lower` is zero on and above the diagonal. The inverses of blocks on the
// diagonal give those of blocks of twice their size: [[a, 0], [b, d]] has the inverse
// [[a', 0], [-d' b a', d']].
Tensor SolveLower(Tensor lower, Tensor y) {
  const int64_t n = lower.shape()[kTime];
  LogicalGraph& graph = *lower.graph();
  const TensorType type = {lower.dtype(), {n, n}};
  Tensor inverse = Eye(graph, n, n, {.dtype = type.dtype});
  for (int64_t size = 1; size < n; size *= 2) {
    Tensor change = Mul(lower, LowerBlocks(graph, type, size));
    if (size > 1) change = MatMul(MatMul(inverse, change), inverse);
    inverse = Sub(inverse, change);
  }
  return n > 1 ? MatMul(inverse, y) : y;
}

// The outputs of a chunk; `state` becomes the one behind it.
Tensor TakeChunk(const Steps& steps, Tensor& state) {
  Tensor decays, grown_q = steps.q, grown_k = steps.k, last_k = steps.k, old_state = state;
  if (!steps.decay.is_none()) {
    decays = PairDecays(steps.decay);
    const Tensor growth = Exp(CumSum(steps.decay, kTime));
    grown_q = Mul(steps.q, growth);
    grown_k = Mul(steps.k, growth);
    // What is left of each step behind the last one: [.., time, 1 or depth].
    const Tensor left = SliceAxis(decays, -2, {.begin = -1});
    last_k = Mul(steps.k, SwapLast(decays.shape().rank() == kPairRank ? Squeeze(left, -2) : left));
    old_state = Mul(state, SwapLast(SliceAxis(growth, kTime, {.begin = -1})));
  }
  Tensor updates = steps.v;
  if (!steps.beta.is_none()) {
    const Tensor lower = Mul(steps.beta, Tril(DecayedProducts(steps.k, steps.k, decays), -1));
    updates = SolveLower(lower, Mul(steps.beta, Sub(steps.v, MatMul(grown_k, state))));
  }
  const Tensor products = Tril(DecayedProducts(steps.q, steps.k, decays));
  const Tensor outputs = Add(MatMul(grown_q, state), MatMul(products, updates));
  state = Add(old_state, MatMul(last_k, updates, {.transpose_a = true}));
  return outputs;
}

// [batch, time, heads * size] as [batch, heads / group, group, time, size].
absl::StatusOr<Tensor> ByHead(Tensor x, int64_t heads, int64_t group, DType dtype) {
  const Shape shape = x.shape();
  if (shape.rank() != 3 || shape[2] % heads != 0) {
    return Wrong(absl::StrCat(heads, " heads of ", shape.ToString(),
                              "; [batch, time, heads * size] is needed"));
  }
  const Tensor split =
      Reshape(Cast(x, dtype), {shape[0], shape[1], heads / group, group, shape[2] / heads});
  return Transpose(split, {0, 2, 3, 1, 4});
}

// query, key, value, past state, decay, beta.
absl::StatusOr<Steps> ReadSteps(const NodeView& n, DType dtype) {
  const int64_t q_heads = n.Int("q_num_heads", 0), kv_heads = n.Int("kv_num_heads", 0);
  if (q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0) {
    return Wrong(absl::StrCat(q_heads, " heads of queries, ", kv_heads, " of keys"));
  }
  const std::string rule = n.Text("update_rule", "gated_delta");
  const bool is_gated = rule == "gated" || rule == "gated_delta";
  const bool is_delta = rule == "delta" || rule == "gated_delta";
  if (!is_gated && !is_delta && rule != "linear") {
    return Wrong(absl::StrCat("update_rule is '", rule, "'"));
  }
  if (n.HasInput(4) != is_gated || n.HasInput(5) != is_delta) {
    return Wrong(absl::StrCat("the rule ", rule, is_gated ? " needs decay" : " takes no decay",
                              is_delta ? " and needs beta" : " and takes no beta"));
  }
  Steps steps;
  BRAID_ASSIGN_OR_RETURN(steps.q, ByHead(n.in(0), q_heads, q_heads / kv_heads, dtype));
  BRAID_ASSIGN_OR_RETURN(steps.k, ByHead(n.in(1), kv_heads, 1, dtype));
  BRAID_ASSIGN_OR_RETURN(steps.v, ByHead(n.in(2), kv_heads, 1, dtype));
  if (is_gated) {
    BRAID_ASSIGN_OR_RETURN(steps.decay, ByHead(n.in(4), kv_heads, 1, dtype));
  }
  if (is_delta) {
    const int64_t heads = n.rank(5) == 3 && n.shape(5)[2] == 1 ? 1 : kv_heads;
    BRAID_ASSIGN_OR_RETURN(steps.beta, ByHead(n.in(5), heads, 1, dtype));
  }
  const Shape q = steps.q.shape(), k = steps.k.shape(), v = steps.v.shape();
  const int64_t decays = is_gated ? steps.decay.shape()[4] : 1;
  const bool fits = q[0] == k[0] && q[kTime] == k[kTime] && q[4] == k[4] && v[0] == k[0] &&
                    v[kTime] == k[kTime] && (decays == 1 || decays == k[4]) &&
                    (!is_delta || steps.beta.shape()[4] == 1);
  if (!fits) {
    return Wrong(absl::StrCat("query ", n.shape(0).ToString(), ", key ", n.shape(1).ToString(),
                              ", value ", n.shape(2).ToString(), ", decay or beta do not fit"));
  }
  return steps;
}

absl::StatusOr<Tensors> TranslateLinearAttention(const NodeView& n) {
  const DType dtype = n.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  BRAID_ASSIGN_OR_RETURN(const Steps steps, ReadSteps(n, dtype));
  const Shape q = steps.q.shape(), k = steps.k.shape(), v = steps.v.shape();
  double scale = n.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q[4])));
  const int64_t hint = n.Int("chunk_size", kChunk), time = q[kTime];
  const bool by_depth = !steps.decay.is_none() && steps.decay.shape()[4] > 1;
  const int64_t chunk = std::clamp<int64_t>(hint, 1, by_depth ? kChunkOfDepth : kChunk);
  const Shape state_shape = {k[0], k[1], 1, k[4], v[4]};
  Tensor state = Constant(n.graph(), 0, {.dtype = dtype, .shape = state_shape});
  if (n.HasInput(3)) {
    if (n.shape(3) != Shape{k[0], k[1], k[4], v[4]}) {
      return Wrong(absl::StrCat("past_state is ", n.shape(3).ToString()));
    }
    state = Reshape(Cast(n.in(3), dtype), state_shape);
  }
  Tensors outputs;
  for (int64_t begin = 0; begin < time; begin += chunk) {
    outputs.push_back(TakeChunk(steps.Part(begin, std::min(time, begin + chunk)), state));
  }
  if (outputs.empty()) return Lacking("a sequence of no steps");
  const Tensor all = outputs.size() == 1 ? outputs[0] : Concat(outputs, kTime);
  const Tensor merged =
      Reshape(Transpose(Scale(all, scale), {0, 3, 1, 2, 4}), {q[0], time, q[1] * q[2] * v[4]});
  return Tensors{Cast(merged, n.dtype()),
                 Cast(Reshape(state, {k[0], k[1], k[4], v[4]}), n.dtype(n.HasInput(3) ? 3 : 0))};
}

// x [batch, channels, time], a kernel for each channel, bias, and what stood before x.
absl::StatusOr<Tensors> TranslateCausalConv(const NodeView& n) {
  const std::string activation = n.Text("activation", "none");
  const bool is_silu = activation == "silu" || activation == "swish";
  if (!is_silu && activation != "none") return Wrong("activation is '" + activation + "'");
  if (n.rank(0) != 3 || n.rank(1) != 3 || n.shape(1)[2] < 1) {
    return Wrong("x and kernels of three axes are needed");
  }
  const Shape shape = n.shape();
  const int64_t before = n.shape(1)[2] - 1;
  if (n.HasInput(3) && n.shape(3) != Shape{shape[0], shape[1], before}) {
    return Wrong(absl::StrCat("past_state is ", n.shape(3).ToString()));
  }
  Tensor x = n.in(0);
  if (before > 0 && n.HasInput(3)) {
    x = Concat({n.in(3), x}, 2);
  } else if (before > 0) {
    x = Pad(x, {0, 0, before}, {0, 0, 0});
  }
  const ConvOptions options = {.groups = shape[1]};
  const Tensor sums =
      n.HasInput(2) ? Conv(x, n.in(1), n.in(2), options) : Conv(x, n.in(1), options);
  const Tensor state = SliceAxis(x, 2, {.begin = shape[2], .end = shape[2] + before});
  return Tensors{is_silu ? Silu(sums) : sums, state};
}

}  // namespace

void AddLinearAttention(Translators& all) {
  all.Add("LinearAttention", {3, 6}, TranslateLinearAttention);
  all.Add("CausalConvWithState", {2, 4}, TranslateCausalConv);
}

}  // namespace braid::onnx
