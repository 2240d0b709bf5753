#include "graph/functional.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "graph/functions/integers.h"
#include "graph/functions/operand_checks.h"

namespace braid {
namespace {

LogicalGraph* GraphOf(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) {
    if (t.graph() != nullptr) return t.graph();
  }
  return nullptr;
}

Tensor Compare(std::string_view op, Tensor a, Tensor b, SourceLocation where) {
  const auto is_integer = [](Tensor t) {
    return t.valid() && (t.dtype() == DType::kI32 || t.dtype() == DType::kI64);
  };
  if (is_integer(a) && is_integer(b) && a.dtype() != b.dtype()) {
    a = Cast(a, DType::kI64, where);
    b = Cast(b, DType::kI64, where);
  }
  return Apply(op, {a, b}, {}, where);
}

// What does not fit the way in which a variable begins, or "".
std::string InitProblem(const VariableOptions& options) {
  const struct {
    const char* init;
    const char* numbers;  // that only it takes
    bool is_given;
  } kinds[] = {{"zeros", "", false},
               {"ones", "", false},
               {"constant", ".value", options.value != 0},
               {"uniform", ".low or .high", options.low != 0 || options.high != 0},
               {"normal", ".mean or .stddev", options.mean != 0 || options.stddev != 0}};
  bool is_known = false;
  for (const auto& kind : kinds) {
    is_known = is_known || options.init == kind.init;
    if (!kind.is_given || options.init == kind.init) continue;
    return absl::StrCat(kind.numbers, " is of .init = \"", kind.init, "\", and it has .init = \"",
                        options.init, "\"");
  }
  if (is_known) return "";
  return absl::StrCat("init is \"", options.init,
                      "\"; zeros, ones, constant, uniform or normal was expected");
}

Tensor Source(LogicalGraph& graph, std::string_view type, Attrs attrs, SourceLocation where) {
  return graph.Append1(type, {}, {.name = "", .attrs = std::move(attrs), .location = where});
}

}  // namespace

std::vector<Tensor> ApplyAll(std::string_view type, const std::vector<Tensor>& inputs, Attrs attrs,
                             SourceLocation where) {
  LogicalGraph* graph = GraphOf(inputs);
  if (graph == nullptr) return {Invalid(inputs, where)};
  return graph->Append(type, inputs, {.name = "", .attrs = std::move(attrs), .location = where});
}

Tensor Apply(std::string_view type, const std::vector<Tensor>& inputs, Attrs attrs,
             SourceLocation where) {
  return ApplyAll(type, inputs, std::move(attrs), where)[0];
}

Tensor Add(Tensor a, Tensor b, SourceLocation where) { return Apply("add", {a, b}, {}, where); }
Tensor Sub(Tensor a, Tensor b, SourceLocation where) { return Apply("sub", {a, b}, {}, where); }
Tensor Mul(Tensor a, Tensor b, SourceLocation where) { return Apply("mul", {a, b}, {}, where); }
Tensor Div(Tensor a, Tensor b, SourceLocation where) { return Apply("div", {a, b}, {}, where); }
Tensor Pow(Tensor a, Tensor b, SourceLocation where) { return Apply("pow", {a, b}, {}, where); }
Tensor Pow(Tensor a, double exponent, SourceLocation where) {
  if (!a.valid()) return a;
  return Pow(a, Constant(*a.graph(), exponent, {.dtype = a.dtype()}, where), where);
}
Tensor Maximum(Tensor a, Tensor b, SourceLocation where) {
  return Apply("maximum", {a, b}, {}, where);
}
Tensor Minimum(Tensor a, Tensor b, SourceLocation where) {
  return Apply("minimum", {a, b}, {}, where);
}

Tensor Equal(Tensor a, Tensor b, SourceLocation where) { return Compare("equal", a, b, where); }
Tensor NotEqual(Tensor a, Tensor b, SourceLocation where) {
  return Compare("not_equal", a, b, where);
}
Tensor Less(Tensor a, Tensor b, SourceLocation where) { return Compare("less", a, b, where); }
Tensor LessEqual(Tensor a, Tensor b, SourceLocation where) {
  return Compare("less_equal", a, b, where);
}
Tensor Greater(Tensor a, Tensor b, SourceLocation where) { return Compare("greater", a, b, where); }
Tensor GreaterEqual(Tensor a, Tensor b, SourceLocation where) {
  return Compare("greater_equal", a, b, where);
}
Tensor LogicalAnd(Tensor a, Tensor b, SourceLocation where) {
  return Apply("logical_and", {a, b}, {}, where);
}
Tensor LogicalOr(Tensor a, Tensor b, SourceLocation where) {
  return Apply("logical_or", {a, b}, {}, where);
}
Tensor LogicalNot(Tensor x, SourceLocation where) { return Apply("logical_not", {x}, {}, where); }

Tensor Identity(Tensor x, SourceLocation where) { return Apply("identity", {x}, {}, where); }
Tensor Neg(Tensor x, SourceLocation where) { return Apply("neg", {x}, {}, where); }
Tensor Exp(Tensor x, SourceLocation where) { return Apply("exp", {x}, {}, where); }
Tensor Log(Tensor x, SourceLocation where) { return Apply("log", {x}, {}, where); }
Tensor Sqrt(Tensor x, SourceLocation where) { return Apply("sqrt", {x}, {}, where); }
Tensor Rsqrt(Tensor x, SourceLocation where) { return Apply("rsqrt", {x}, {}, where); }
Tensor Tanh(Tensor x, SourceLocation where) { return Apply("tanh", {x}, {}, where); }
Tensor Sigmoid(Tensor x, SourceLocation where) { return Apply("sigmoid", {x}, {}, where); }
Tensor Relu(Tensor x, SourceLocation where) { return Apply("relu", {x}, {}, where); }
Tensor Gelu(Tensor x, GeluOptions options, SourceLocation where) {
  return Apply("gelu", {x}, {{"approximate", options.approximate}}, where);
}
Tensor Abs(Tensor x, SourceLocation where) { return Apply("abs", {x}, {}, where); }
Tensor Square(Tensor x, SourceLocation where) { return Apply("square", {x}, {}, where); }
Tensor Reciprocal(Tensor x, SourceLocation where) { return Apply("reciprocal", {x}, {}, where); }
Tensor Sign(Tensor x, SourceLocation where) { return Apply("sign", {x}, {}, where); }
Tensor Scale(Tensor x, double factor, SourceLocation where) {
  return Apply("scale", {x}, {{"factor", factor}}, where);
}
Tensor AddScalar(Tensor x, double value, SourceLocation where) {
  return Apply("add_scalar", {x}, {{"value", value}}, where);
}
Tensor Clip(Tensor x, double low, double high, SourceLocation where) {
  return Apply("clip", {x}, {{"low", low}, {"high", high}}, where);
}
Tensor Cast(Tensor x, DType dtype, SourceLocation where) {
  if (x.valid() && x.dtype() == dtype) return x;
  return Apply("cast", {x}, {{"dtype", dtype}}, where);
}
Tensor Cast(Tensor x, DType dtype, CastOptions options, SourceLocation where) {
  if (x.valid() && x.dtype() == dtype) return x;
  Attrs attrs = {{"dtype", dtype}};
  if (!options.saturate) attrs.Set("saturate", int64_t{0});
  if (dtype == DType::kF8E8M0) attrs.Set("rounding", std::move(options.rounding));
  return Apply("cast", {x}, std::move(attrs), where);
}
Tensor BitCast(Tensor x, DType dtype, SourceLocation where) {
  if (x.valid() && x.dtype() == dtype) return x;
  return Apply("bit_cast", {x}, {{"dtype", dtype}}, where);
}
Tensor StopGradient(Tensor x, SourceLocation where) {
  return Apply("stop_gradient", {x}, {}, where);
}

Tensor Reshape(Tensor x, Shape shape, SourceLocation where) {
  if (!x.valid()) return x;
  int64_t known = 1;
  int open = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != -1) {
      // No tensor has so many elements: then no size fits, as if there were none.
      if (__builtin_mul_overflow(known, shape[axis], &known)) known = 0;
    } else if (open == -1) {
      open = axis;
    } else {
      return Fail(x,
                  absl::StrCat("reshape: shape is ", shape.ToString(), "; only one dim may be -1"),
                  where);
    }
  }
  if (open != -1) {
    const int64_t n = x.shape().num_elements();
    if (known == 0 || n % known != 0) {
      return Fail(x,
                  absl::StrCat("reshape: a is ", x.type().ToString(), ", shape is ",
                               shape.ToString(), "; no size fits the dim of -1"),
                  where);
    }
    shape[open] = n / known;
  }
  return Apply("reshape", {x}, {{"shape", shape.dims()}}, where);
}

Tensor Flatten(Tensor x, int64_t first_axis, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> first = Normalize(x, first_axis, x.shape().rank(), "flatten", where);
  if (!first) return Invalid({x}, where);
  const Shape shape = x.shape();
  std::vector<int64_t> dims(shape.begin(), shape.begin() + *first);
  int64_t rest = 1;
  for (int axis = static_cast<int>(*first); axis < x.shape().rank(); ++axis) {
    rest *= x.shape()[axis];
  }
  dims.push_back(rest);
  return Reshape(x, Shape(std::move(dims)), where);
}

Tensor ExpandDims(Tensor x, int64_t axis, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank() + 1, "expand_dims", where);
  if (!at) return Invalid({x}, where);
  std::vector<int64_t> dims = x.shape().dims();
  dims.insert(dims.begin() + *at, 1);
  return Reshape(x, Shape(std::move(dims)), where);
}

Tensor Transpose(Tensor x, std::vector<int64_t> perm, SourceLocation where) {
  if (!x.valid()) return x;
  for (int64_t& axis : perm) {
    if (axis < 0) axis += x.shape().rank();
  }
  return Apply("transpose", {x}, {{"perm", std::move(perm)}}, where);
}

Tensor Concat(const std::vector<Tensor>& xs, int64_t axis, SourceLocation where) {
  if (xs.empty() || !AllValid(xs)) return Invalid(xs, where);
  const std::optional<int64_t> at = Normalize(xs[0], axis, xs[0].shape().rank(), "concat", where);
  if (!at) return Invalid(xs, where);
  return Apply("concat", xs, {{"axis", *at}}, where);
}

std::vector<Tensor> Split(Tensor x, std::vector<int64_t> sizes, int64_t axis,
                          SourceLocation where) {
  const size_t count = sizes.size();
  std::vector<Tensor> parts;
  if (x.valid()) {
    const std::optional<int64_t> at = Normalize(x, axis, x.shape().rank(), "split", where);
    if (at) parts = ApplyAll("split", {x}, {{"axis", *at}, {"sizes", std::move(sizes)}}, where);
  }
  if (parts.size() != count) parts.assign(count, Invalid({x}, where));
  return parts;
}

Tensor BroadcastTo(Tensor x, Shape shape, SourceLocation where) {
  if (x.valid() && x.shape() == shape) return x;
  return Apply("broadcast_to", {x}, {{"shape", shape.dims()}}, where);
}

Tensor MatMul(Tensor a, Tensor b, MatMulOptions options, SourceLocation where) {
  if (a.valid() && b.valid() && options.transpose_a && a.shape().rank() > 2 &&
      b.shape().rank() == 2) {
    // The operator merges the leading dims of a into rows, which a transposed a does not allow.
    std::vector<int64_t> perm(a.shape().rank());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    a = Transpose(a, std::move(perm), where);
    options.transpose_a = false;
  }
  return Apply("matmul", {a, b},
               {{"transpose_a", options.transpose_a}, {"transpose_b", options.transpose_b}}, where);
}
std::vector<Tensor> ByteInputs(const ByteOperand& a, const ByteOperand& b, SourceLocation where) {
  std::vector<Tensor> inputs = {a.numbers, b.numbers};
  if (!a.zero_point.is_none()) {
    inputs.push_back(a.zero_point);
  } else if (!b.zero_point.is_none() && a.numbers.valid()) {
    const DType dtype = a.numbers.dtype();
    inputs.push_back(Constant(*a.numbers.graph(), 0, {.dtype = dtype, .shape = {1}}, where));
  }
  if (!b.zero_point.is_none()) inputs.push_back(b.zero_point);
  return inputs;
}
Tensor MatMulInteger(ByteOperand a, ByteOperand b, bool transpose_b, SourceLocation where) {
  return Apply("matmul_integer", ByteInputs(a, b, where), {{"transpose_b", transpose_b}}, where);
}
Tensor Tensordot(Tensor a, Tensor b, SourceLocation where) {
  return Apply("tensordot", {a, b}, {}, where);
}

Tensor Softmax(Tensor x, SoftmaxOptions options, SourceLocation where) {
  return Apply("softmax", {x}, {{"causal", options.causal}, {"scale", options.scale}}, where);
}
Tensor LogSoftmax(Tensor x, SourceLocation where) { return Apply("log_softmax", {x}, {}, where); }

Tensor LayerNorm(Tensor x, Tensor gamma, Tensor beta, LayerNormOptions options,
                 SourceLocation where) {
  return Apply("layer_norm", {x, gamma, beta}, {{"epsilon", options.epsilon}}, where);
}

Tensor RmsNorm(Tensor x, Tensor gamma, RmsNormOptions options, SourceLocation where) {
  return ApplyAll("rms_norm", {x, gamma}, {{"epsilon", options.epsilon}}, where)[0];
}

Tensor Rotary(Tensor x, RotaryOptions options, SourceLocation where) {
  if (!x.valid()) return x;
  const std::optional<int64_t> axis =
      Normalize(x, options.time_axis, x.shape().rank(), "rotary", where);
  if (!axis) return Invalid({x}, where);
  std::vector<Tensor> operands = {x};
  if (!options.positions.is_none()) operands.push_back(options.positions);
  return Apply("rotary", operands,
               {{"axis", *axis},
                {"base", options.base},
                {"offset", options.offset},
                {"interleaved", options.interleaved},
                {"inverse", false}},
               where);
}

Tensor DotProductAttention(Tensor q, Tensor k, Tensor v, DotProductAttentionOptions options,
                           SourceLocation where) {
  std::vector<Tensor> operands = {q, k, v};
  if (!options.mask.is_none()) operands.push_back(options.mask);
  if (!AllValid(operands)) return Invalid(operands, where);
  double scale = 1;
  if (options.scale) {
    scale = *options.scale;
  } else if (const int rank = q.shape().rank(); rank > 0) {
    scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.shape()[rank - 1])));
  }
  return ApplyAll(
      "attention", operands,
      {{"causal", options.causal}, {"scale", scale}, {"time_first", options.time_first}}, where)[0];
}

Tensor CachedAttention(Tensor q, Tensor k, Tensor v, CachedAttentionOptions options,
                       SourceLocation where) {
  const std::vector<Tensor> operands = {q, k, v, options.keys, options.values, options.position};
  if (!AllValid(operands)) return Invalid(operands, where);
  const int rank = q.shape().rank();
  const int64_t depth = rank > 0 ? std::max<int64_t>(1, q.shape()[rank - 1]) : 1;
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(depth)));
  return Apply("cached_attention", operands, {{"scale", scale}}, where);
}

Tensor Where(Tensor condition, Tensor a, Tensor b, SourceLocation where) {
  return Apply("where", {condition, a, b}, {}, where);
}

Tensor Dropout(Tensor x, double rate, SourceLocation where) {
  if (!x.valid()) return x;
  // The key is the name that Append will give.
  const std::string key = x.graph()->UniqueName("dropout");
  return Apply("dropout", {x}, {{"key", key}, {"rate", rate}}, where);
}

Tensor Constant(LogicalGraph& graph, double value, ConstantOptions options, SourceLocation where) {
  return Source(graph, "constant",
                {{"dtype", options.dtype}, {"shape", options.shape.dims()}, {"value", value}},
                where);
}
Tensor Literal(LogicalGraph& graph, TensorType type, std::vector<int64_t> elements,
               SourceLocation where) {
  return Source(
      graph, "literal",
      {{"dtype", type.dtype}, {"shape", type.shape.dims()}, {"elements", std::move(elements)}},
      where);
}
Tensor RandomUniform(LogicalGraph& graph, Shape shape, RandomUniformOptions options,
                     SourceLocation where) {
  return Source(graph, "random_uniform",
                {{"dtype", options.dtype},
                 {"shape", shape.dims()},
                 {"low", options.low},
                 {"high", options.high}},
                where);
}
Tensor RandomNormal(LogicalGraph& graph, Shape shape, RandomNormalOptions options,
                    SourceLocation where) {
  return Source(graph, "random_normal",
                {{"dtype", options.dtype},
                 {"shape", shape.dims()},
                 {"mean", options.mean},
                 {"stddev", options.stddev}},
                where);
}
Tensor Iota(LogicalGraph& graph, TensorType type, int64_t axis, SourceLocation where) {
  if (axis < 0) axis += type.shape.rank();
  return Source(graph, "iota",
                {{"dtype", type.dtype}, {"shape", type.shape.dims()}, {"axis", axis}}, where);
}
Tensor Step(LogicalGraph& graph, SourceLocation where) { return Source(graph, "step", {}, where); }

Tensor Variable(LogicalGraph& graph, VariableOptions options, SourceLocation where) {
  const Attrs attrs = {{"dtype", options.dtype},
                       {"shape", options.shape.dims()},
                       {"init", options.init},
                       {"value", options.value},
                       {"low", options.low},
                       {"high", options.high},
                       {"mean", options.mean},
                       {"stddev", options.stddev},
                       {"trainable", options.trainable}};
  if (const std::string problem = InitProblem(options); !problem.empty()) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("variable '", options.name, "': ", problem, " (", where.ToString(), ")")));
  }
  const Tensor variable = graph.Append1(
      "variable", {},
      {.name = options.name, .attrs = attrs, .location = where, .hints = {options.sbp}});
  if (!variable.valid()) return variable;
  // Its name is how jobs and checkpoints find it: a number put behind it would be another variable.
  const std::string& name = graph.producer(variable.id()).name;
  if (!options.name.empty() && name != options.name && !name.ends_with("." + options.name)) {
    return graph.Fail(absl::AlreadyExistsError(
        absl::StrCat("variable '", options.name, "' is there already, the next free name is '",
                     name, "' (", where.ToString(), ")")));
  }
  return variable;
}

void Assign(Tensor variable, Tensor value, SourceLocation where) {
  ApplyAll("assign", {variable, value}, {}, where);
}

void WriteRows(Tensor variable, Tensor rows, Tensor position, int64_t axis, SourceLocation where) {
  if (const std::vector<Tensor> all = {variable, rows, position}; !AllValid(all)) {
    Invalid(all, where);
    return;
  }
  const std::optional<int64_t> from_start =
      Normalize(variable, axis, variable.shape().rank(), "write_rows", where);
  if (from_start) {
    ApplyAll("write_rows", {variable, rows, position}, {{"axis", *from_start}}, where);
  }
}

Tensor Input(LogicalGraph& graph, std::string name, TensorType type, SourceLocation where) {
  return graph.Append1("input", {},
                       {.name = std::move(name),
                        .attrs = {{"dtype", type.dtype}, {"shape", type.shape.dims()}},
                        .location = where});
}

std::vector<Tensor> Read(LogicalGraph& graph, ReadOptions options, SourceLocation where) {
  // Field types as text: attributes hold no list of types.
  std::string types;
  for (const TensorType& type : options.types) {
    absl::StrAppend(&types, types.empty() ? "" : "; ", type.ToString());
  }
  Attrs attrs = {{"dataset", options.dataset}, {"batch", options.batch},
                 {"shuffle", options.shuffle}, {"key", options.key},
                 {"fields", options.fields},   {"types", types}};
  if (!options.last.empty()) attrs.Set("last", options.last);
  if (options.fingerprint != 0) {
    attrs.Set("fingerprint", static_cast<int64_t>(options.fingerprint));
  }
  std::vector<Tensor> outputs =
      graph.Append("read", {}, {.name = "", .attrs = std::move(attrs), .location = where});
  outputs.resize(options.types.size(), Tensor(&graph, kNone));
  return outputs;
}

void Fetch(Tensor x, std::string name, SourceLocation where) {
  ApplyAll("fetch", {x}, {{"name", std::move(name)}}, where);
}

Tensor IfTraining(Tensor a, Tensor b, SourceLocation where) {
  return Apply("if_training", {a, b}, {}, where);
}

Tensor GradientOf(Tensor x, SourceLocation where) { return Apply("gradient_of", {x}, {}, where); }

Tensor ToSbp(Tensor x, NdSbp sbp, SourceLocation where) {
  if (!x.valid()) return x;
  return x.graph()->Append1(
      "identity", std::vector<Tensor>{x},
      {.name = "", .attrs = {}, .location = where, .hints = {std::move(sbp)}});
}

Tensor ToPlacement(Tensor x, Placement placement, SourceLocation where) {
  if (!x.valid()) return x;
  if (placement.size() == 0) {
    const std::string& problem = placement.problem();
    return Fail(x,
                absl::StrCat("to_placement: the placement has no devices",
                             problem.empty() ? "" : absl::StrCat(": ", problem)),
                where);
  }
  return x.graph()->Append1(
      "identity", std::vector<Tensor>{x},
      {.name = "", .attrs = {}, .location = where, .hints = {}, .placement = std::move(placement)});
}

}  // namespace braid
