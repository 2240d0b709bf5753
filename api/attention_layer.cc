// The layer of multi-head attention: projections, and the form of attention that fits.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/layer_scope.h"
#include "api/layers.h"

namespace braid {
namespace {

// The weights of scores under a mask: zeros where it lets nothing be seen.
Tensor MaskedSoftmax(Tensor scores, const AttentionOptions& options, SourceLocation where) {
  if (!scores.valid() || !options.mask.valid()) return options.mask;
  LogicalGraph& graph = *scores.graph();
  const auto number = [&](double value) {
    return Constant(graph, value, {.dtype = scores.dtype()}, where);
  };
  Tensor is_seen = options.mask;
  if (options.mask.dtype() != DType::kBool) {
    is_seen = Greater(options.mask, number(-std::numeric_limits<double>::infinity()), where);
    scores = Add(scores, options.mask, where);
  }
  // Finite, so that a row of which nothing is seen has no NaN; in f16, too.
  scores = Where(is_seen, scores, number(-6e4), where);
  return Where(is_seen, Softmax(scores, {.causal = options.causal}, where), number(0), where);
}

// Attention whose weights exist, so that some can be dropped; operands are [batch, time, heads,
// depth].
Tensor MixWithDropout(Tensor q, Tensor k, Tensor v, const AttentionOptions& options,
                      SourceLocation where) {
  if (!q.valid() || !k.valid() || !v.valid()) return q;
  const auto depth = static_cast<double>(q.shape()[3]);
  const auto swap_heads_and_time = [&](Tensor x) { return Transpose(x, {0, 2, 1, 3}, where); };
  const Tensor scores =
      MatMul(swap_heads_and_time(q), swap_heads_and_time(k), {.transpose_b = true}, where);
  const Tensor weights =
      options.mask.is_none()
          ? Softmax(scores, {.causal = options.causal, .scale = 1 / std::sqrt(depth)}, where)
          : MaskedSoftmax(Scale(scores, 1 / std::sqrt(depth), where), options, where);
  return swap_heads_and_time(
      MatMul(Dropout(weights, options.dropout, where), swap_heads_and_time(v), {}, where));
}

// A variable for keys or values [batch, time, heads, depth] of earlier steps: [batch, cache, heads,
// depth], of which each device has its heads.
Tensor Cache(Tensor fresh, const char* name, const AttentionOptions& options,
             SourceLocation where) {
  if (!fresh.valid()) return fresh;
  const Shape shape = fresh.shape();
  VariableOptions variable;
  variable.name = name;
  variable.dtype = fresh.dtype();
  variable.shape = {shape[0], options.cache, shape[2], shape[3]};
  variable.trainable = false;
  if (options.projection.has_value()) {
    variable.sbp = options.projection;
    for (int dim = 0; dim < variable.sbp->rank(); ++dim) {
      Sbp& sbp = (*variable.sbp)[dim];
      sbp = sbp == sbp::S(1) ? sbp::S(2) : sbp::B;
    }
  }
  return GetVariable(*fresh.graph(), std::move(variable), where);
}

Tensor MixWithCache(Tensor q, Tensor k, Tensor v, const AttentionOptions& options,
                    SourceLocation where) {
  const Tensor keys = Cache(k, "cache_k", options, where);
  const Tensor values = Cache(v, "cache_v", options, where);
  const Tensor mixed = CachedAttention(
      q, k, v, {.keys = keys, .values = values, .position = options.position}, where);
  WriteRows(keys, k, options.position, 1, where);
  WriteRows(values, v, options.position, 1, where);
  return mixed;
}

// Why the options do not fit x, or "".
std::string Problem(Tensor x, const AttentionOptions& options) {
  const Shape& shape = x.shape();
  if (shape.rank() != 3 || options.heads < 1 || shape[2] % options.heads != 0) {
    return absl::StrFormat(
        "x is %s with %d heads; [batch, time, channels] with channels divisible by the heads was "
        "expected",
        shape.ToString(), options.heads);
  }
  if (!options.mask.is_none() && options.cache > 0) return "a mask and a cache do not go together";
  if (options.cache == 0) return "";
  const bool has_position = options.position.valid() && options.position.shape().rank() == 0;
  if (options.cache >= shape[1] && has_position && options.causal && options.dropout == 0) {
    return "";
  }
  return absl::StrFormat(
      "x is %s, cache is %d, position %s, causal %s, dropout %g; a cache for at least the tokens "
      "of x, a position i32 or i64 [], causal attention and no dropout were expected",
      shape.ToString(), options.cache,
      options.position.valid() ? options.position.type().ToString() : "missing",
      options.causal ? "true" : "false", options.dropout);
}

}  // namespace

Tensor Attention(Tensor x, AttentionOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (!NameLayer(*x.graph(), "attn", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
  if (const std::string problem = Problem(x, options); !problem.empty()) {
    return x.graph()->Fail(absl::InvalidArgumentError(
        absl::StrFormat("attention '%s': %s (%s)", options.name, problem, where.ToString())));
  }
  const int64_t batch = x.shape()[0], time = x.shape()[1], channels = x.shape()[2];
  const int64_t depth = channels / options.heads;
  const NameScope scope(*x.graph(), options.name);
  const auto project = [&](const char* name) {
    const Tensor y = Linear(x, channels,
                            {.name = name,
                             .share = options.share,
                             .weight = options.projection,
                             .stddev = options.stddev},
                            where);
    return Reshape(y, {batch, time, options.heads, depth}, where);
  };
  const Tensor q = project("q"), k = project("k"), v = project("v");
  Tensor mixed;
  if (options.cache > 0) {
    mixed = MixWithCache(q, k, v, options, where);
  } else if (options.dropout > 0) {
    mixed = MixWithDropout(q, k, v, options, where);
  } else {
    mixed = DotProductAttention(
        q, k, v, {.mask = options.mask, .causal = options.causal, .time_first = true}, where);
  }
  return Linear(
      Reshape(mixed, {batch, time, channels}, where), channels,
      {.name = "proj", .share = options.share, .weight = options.output, .stddev = options.stddev},
      where);
}

}  // namespace braid
