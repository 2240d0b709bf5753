#include "api/layers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "api/layer_scope.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

// Adds `error` to the graph unless `x` has an error already.
Tensor Fail(Tensor x, SourceLocation where, std::string_view layer, std::string_view name,
            const std::string& problem) {
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
    if (IsVariable(graph, found) && variable.type() == wanted) return variable;
    return graph.Fail(absl::InvalidArgumentError(absl::StrFormat(
        "variable '%s': it is %s at %s and %s here (%s); give the second one another name", full,
        variable.type().ToString(), found.location.ToString(), wanted.ToString(),
        where.ToString())));
  }
  return Variable(graph, std::move(options), where);
}

Tensor Linear(Tensor x, int64_t features, LinearOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (!NameLayer(*x.graph(), "linear", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
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
  if (!NameLayer(*indices.graph(), "embedding", options.name, options.share, where))
    return Tensor(indices.graph(), kNone);
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
  if (!NameLayer(*x.graph(), "norm", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
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

Tensor ConvLayer(Tensor x, int64_t features, ConvLayerOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (!NameLayer(*x.graph(), "conv", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
  const Shape shape = x.shape();
  const int axes = shape.rank() - 2;
  if (options.kernel.size() == 1 && axes > 0) options.kernel.resize(axes, options.kernel[0]);
  if (axes < 1 || options.groups < 1 || shape[1] % options.groups != 0 ||
      static_cast<int>(options.kernel.size()) != axes) {
    return Fail(x, where, "conv", options.name,
                absl::StrFormat("x is %s with %d groups and %d kernel sizes; [n, c, space...] with "
                                "channels divisible by the groups and a size per axis of space was "
                                "expected",
                                shape.ToString(), options.groups, options.kernel.size()));
  }
  LogicalGraph& graph = *x.graph();
  const NameScope scope(graph, options.name);
  std::vector<int64_t> dims = {features, shape[1] / options.groups};
  int64_t inputs = dims[1];
  for (int64_t size : options.kernel) {
    dims.push_back(size);
    inputs *= size;
  }
  VariableOptions weight;
  weight.name = "weight";
  weight.dtype = x.dtype();
  weight.shape = Shape(std::move(dims));
  weight.sbp = options.weight;
  weight.init = "uniform";
  weight.high = 1 / std::sqrt(static_cast<double>(inputs > 0 ? inputs : 1));
  weight.low = -weight.high;
  VariableOptions bias = weight;
  bias.name = "bias";
  bias.shape = Shape{features};
  if (options.stddev.has_value()) {
    weight.low = weight.high = 0;
    weight.init = "normal";
    weight.stddev = *options.stddev;
  }
  if (bias.sbp.has_value()) {
    for (int dim = 0; dim < bias.sbp->rank(); ++dim) {
      if ((*bias.sbp)[dim] != sbp::S(0)) (*bias.sbp)[dim] = sbp::B;
    }
  }
  const Tensor w = GetVariable(graph, std::move(weight), where);
  const ConvOptions conv = {.strides = options.strides,
                            .dilations = options.dilations,
                            .padding = options.padding,
                            .same = options.same,
                            .groups = options.groups};
  if (!options.bias) return Conv(x, w, conv, where);
  return Conv(x, w, GetVariable(graph, std::move(bias), where), conv, where);
}

Tensor BatchNormLayer(Tensor x, BatchNormLayerOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (const auto mirroring = x.mirroring(); options.sync && mirroring.has_value()) {
    // What all devices have is one batch, of which each gets its part back.
    const Tensor y = BatchNormLayer(JoinParts(x, where), std::move(options), where);
    LogicalGraph& graph = *x.graph();
    graph.PushMirroring(*mirroring);
    const Tensor own = MirrorParts(y, where);
    graph.PopMirroring();
    return own;
  }
  if (!NameLayer(*x.graph(), "norm", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
  const Shape shape = x.shape();
  if (shape.rank() < 2) {
    return Fail(x, where, "batch_norm", options.name,
                absl::StrFormat("x is %s; [n, c, space...] was expected", shape.ToString()));
  }
  LogicalGraph& graph = *x.graph();
  const NameScope scope(graph, options.name);
  const DType dtype = x.dtype(), wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto variable = [&](const std::string& name, DType type, const char* init, bool trainable) {
    VariableOptions options;
    options.name = name;
    options.dtype = type;
    options.shape = Shape{shape[1]};
    options.init = init;
    options.trainable = trainable;
    return GetVariable(graph, std::move(options), where);
  };
  const Tensor gamma = variable(options.gamma, dtype, "ones", /*trainable=*/true);
  const Tensor beta = variable(options.beta, dtype, "zeros", /*trainable=*/true);
  const Tensor mean = variable(options.running_mean, wide, "zeros", /*trainable=*/false);
  const Tensor variance = variable(options.running_variance, wide, "ones", /*trainable=*/false);
  const BatchNormOptions norm = {.epsilon = options.epsilon, .groups = options.groups};
  const auto by_running = [&] {
    return BatchNorm(x, gamma, beta, Cast(mean, dtype, where), Cast(variance, dtype, where), norm,
                     where);
  };
  const bool follows_job = !options.training.has_value();
  if (!options.training.value_or(true)) return by_running();
  const BatchNormResult result = BatchNormTraining(x, gamma, beta, norm, where);
  const double count =
      static_cast<double>(shape.num_elements()) /
      static_cast<double>(std::max<int64_t>(1, shape[1]) * std::max<int64_t>(1, options.groups));
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const auto move = [&](Tensor running, Tensor newest, double factor) {
    // Of devices with batches of their own the first one's counts.
    if (newest.mirroring().has_value()) newest = FromRank(newest, 0, where);
    const Tensor kept = Scale(running, 1 - options.momentum, where);
    const Tensor added = Scale(Cast(newest, wide, where), options.momentum * factor, where);
    const Tensor moved = Add(kept, added, where);
    Assign(running, follows_job ? IfTraining(moved, running, where) : moved, where);
  };
  move(mean, result.mean, 1);
  move(variance, result.variance, unbiased);
  return follows_job ? IfTraining(result.y, by_running(), where) : result.y;
}

Tensor RmsNormLayer(Tensor x, RmsNormLayerOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  if (!NameLayer(*x.graph(), "norm", options.name, options.share, where))
    return Tensor(x.graph(), kNone);
  if (x.shape().rank() < 1) {
    return Fail(x, where, "rms_norm", options.name,
                absl::StrFormat("x is %s; [..., c] was expected", x.shape().ToString()));
  }
  const NameScope scope(*x.graph(), options.name);
  VariableOptions gamma;
  gamma.name = "gamma";
  gamma.dtype = x.dtype();
  gamma.shape = Shape{x.shape()[x.shape().rank() - 1]};
  gamma.init = "ones";
  return RmsNorm(x, GetVariable(*x.graph(), std::move(gamma), where), {.epsilon = options.epsilon},
                 where);
}

}  // namespace braid
