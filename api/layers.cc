#include "api/layers.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

// Adds `error` to the graph unless `x` has an error already.
Tensor Fail(Tensor x, SourceLocation where, std::string_view layer, std::string_view name,
            const std::string& problem) {
  if (x.graph() == nullptr) return {};
  if (!x.valid()) return x;
  return x.graph()->Fail(absl::InvalidArgumentError(
      absl::StrFormat("%s '%s': %s (%s)", layer, name, problem, where.ToString())));
}

// The layout of a bias [features] beside a weight [in, features]: it follows the columns.
std::optional<NdSbp> BiasLayout(const std::optional<NdSbp>& weight) {
  if (!weight.has_value()) return std::nullopt;
  NdSbp bias = *weight;
  for (int dim = 0; dim < bias.rank(); ++dim) {
    bias[dim] = bias[dim] == sbp::S(1) ? sbp::S(0) : sbp::B;
  }
  return bias;
}

}  // namespace

Tensor GetVariable(LogicalGraph& graph, VariableOptions options, SourceLocation where) {
  const std::string full = graph.ScopedName(options.name);
  if (const std::optional<OpId> op = graph.FindOp(full); op.has_value()) {
    const Op& found = graph.op(*op);
    const Tensor variable(&graph, found.outputs[0]);
    const TensorType wanted{options.dtype, options.shape};
    if (found.type == "variable" && variable.type() == wanted) return variable;
    return graph.Fail(absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s': it is %s at %s and %s here (%s); give the second one another name", full,
        variable.type().ToString(), found.location.ToString(), wanted.ToString(),
        where.ToString())));
  }
  return Variable(graph, std::move(options), where);
}

Tensor Linear(Tensor x, int64_t features, LinearOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (x.shape().rank() < 1) {
    return Fail(x, where, "linear", options.name,
                absl::StrFormat("x is %s; [..., in] was expected", x.shape().ToString()));
  }
  LogicalGraph& graph = *x.graph();
  const NameScope scope(graph, options.name);
  const int64_t in = x.shape()[x.shape().rank() - 1];
  VariableOptions weight;
  weight.name = "weight";
  weight.dtype = x.dtype();
  weight.shape = {in, features};
  weight.sbp = options.weight;
  if (options.stddev.has_value()) {
    weight.init = "normal";
    weight.stddev = *options.stddev;
  } else {
    weight.init = "uniform";
    weight.high = 1 / std::sqrt(static_cast<double>(in > 0 ? in : 1));
    weight.low = -weight.high;
  }
  const Tensor product = MatMul(x, GetVariable(graph, std::move(weight), where), {}, where);
  if (!options.bias) return product;
  VariableOptions bias;
  bias.name = "bias";
  bias.dtype = x.dtype();
  bias.shape = Shape{features};
  bias.sbp = BiasLayout(options.weight);
  return Add(product, GetVariable(graph, std::move(bias), where), where);
}

Tensor EmbeddingLayer(Tensor indices, int64_t rows, int64_t features, EmbeddingLayerOptions options,
                      SourceLocation where) {
  if (!indices.valid()) return indices;
  LogicalGraph& graph = *indices.graph();
  const NameScope scope(graph, options.name);
  VariableOptions table;
  table.name = "weight";
  table.dtype = options.dtype;
  table.shape = {rows, features};
  table.init = "normal";
  table.stddev = options.stddev;
  table.sbp = options.weight;
  return Embedding(GetVariable(graph, std::move(table), where), indices, where);
}

Tensor LayerNormLayer(Tensor x, LayerNormLayerOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (x.shape().rank() < 1) {
    return Fail(x, where, "layer_norm", options.name,
                absl::StrFormat("x is %s; [..., c] was expected", x.shape().ToString()));
  }
  LogicalGraph& graph = *x.graph();
  const NameScope scope(graph, options.name);
  VariableOptions gamma;
  gamma.name = "gamma";
  gamma.dtype = x.dtype();
  gamma.shape = Shape{x.shape()[x.shape().rank() - 1]};
  gamma.init = "ones";
  VariableOptions beta = gamma;
  beta.name = "beta";
  beta.init = "zeros";
  const Tensor scale = GetVariable(graph, std::move(gamma), where);
  const Tensor shift = GetVariable(graph, std::move(beta), where);
  return LayerNorm(x, scale, shift, {.epsilon = options.epsilon}, where);
}

Tensor Attention(Tensor x, AttentionOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (x.shape().rank() != 3 || options.heads < 1 || x.shape()[2] % options.heads != 0) {
    return Fail(x, where, "attention", options.name,
                absl::StrFormat("x is %s with %d heads; [batch, time, channels] with channels "
                                "divisible by the heads was expected",
                                x.shape().ToString(), options.heads));
  }
  const int64_t batch = x.shape()[0], time = x.shape()[1], channels = x.shape()[2];
  const int64_t depth = channels / options.heads;
  const NameScope scope(*x.graph(), options.name);
  const auto project = [&](const char* name) {
    const Tensor y = Linear(
        x, channels, {.name = name, .weight = options.projection, .stddev = options.stddev}, where);
    return Transpose(Reshape(y, {batch, time, options.heads, depth}, where), {0, 2, 1, 3}, where);
  };
  const Tensor q = project("q"), k = project("k"), v = project("v");
  const Tensor scores = MatMul(q, k, {.transpose_b = true}, where);
  Tensor weights = Softmax(
      scores, {.causal = options.causal, .scale = 1 / std::sqrt(static_cast<double>(depth))},
      where);
  if (options.dropout > 0) weights = Dropout(weights, options.dropout, where);
  const Tensor mixed = Transpose(MatMul(weights, v, {}, where), {0, 2, 1, 3}, where);
  return Linear(Reshape(mixed, {batch, time, channels}, where), channels,
                {.name = "proj", .weight = options.output, .stddev = options.stddev}, where);
}

}  // namespace braid
