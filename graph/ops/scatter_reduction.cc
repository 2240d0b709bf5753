#include "graph/ops/scatter_reduction.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

Tensor Zeros(const Context& c, Tensor like) {
  return Constant(c.graph, 0, {.dtype = like.dtype(), .shape = like.shape()});
}

Tensor IsZero(const Context& c, Tensor x) {
  return Cast(Equal(x, Constant(c.graph, 0, {.dtype = x.dtype()})), x.dtype());
}

Gradients OverwriteGradient(const Context& c, const Places& at) {
  const Tensor dy = c.output_gradients[0], updates = c.inputs[2];
  const Tensor table_gradient = at.join(dy, Zeros(c, updates), "none");
  const Tensor zero = Constant(c.graph, 0, {.dtype = dy.dtype()});
  const Tensor stays = at.last_ones(), read = at.read(dy);
  return {table_gradient, Tensor(), Where(stays, read, zero)};
}

// A factor's gradient is the product of the others: without zeros that of all but it, with one zero
// only that zero's is not 0.
Gradients ProductGradient(const Context& c, const Places& at) {
  const Tensor dy = c.output_gradients[0], table = c.inputs[0], updates = c.inputs[2];
  const Shape shape = table.shape();
  const Tensor table_zero = IsZero(c, table), updates_zero = IsZero(c, updates);
  const Tensor zeros = Add(table_zero, at.sum(updates_zero, shape));
  const Tensor table_factor = Add(table, table_zero), updates_factor = Add(updates, updates_zero);
  const Tensor weighted = Mul(dy, at.join(table_factor, updates_factor, "mul"));
  const auto share = [&](Tensor product, Tensor factor, Tensor count, Tensor own) {
    const Tensor others = Div(product, factor);
    return Mul(others, Cast(Equal(count, own), dy.dtype()));
  };
  const Tensor table_gradient = share(weighted, table_factor, zeros, table_zero);
  const Tensor read = at.read(weighted), count = at.read(zeros);
  return {table_gradient, Tensor(), share(read, updates_factor, count, updates_zero)};
}

// Elements that are equal to the extreme share its gradient.
Gradients ExtremeGradient(const Context& c, const Places& at) {
  const Tensor dy = c.output_gradients[0], table = c.inputs[0], updates = c.inputs[2];
  const DType dtype = dy.dtype();
  const Tensor table_is = Cast(Equal(table, c.outputs[0]), dtype);
  const Tensor updates_are = Cast(Equal(updates, at.read(c.outputs[0])), dtype);
  const Tensor ties = Add(table_is, at.sum(updates_are, table.shape()));
  // Where nothing is equal (a NaN), nothing flows.
  const Tensor each = Div(dy, Maximum(ties, Constant(c.graph, 1, {.dtype = dtype})));
  const Tensor table_gradient = Mul(each, table_is);
  return {table_gradient, Tensor(), Mul(at.read(each), updates_are)};
}

}  // namespace

absl::Status CheckReduction(const OpContext& ctx) {
  const std::string& reduction = ctx.attrs.String("reduction");
  if (reduction == "none" || ctx.inputs[0].dtype == DType::kBool) {
    if (reduction == "none") return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(),
                                                   ", reduction is '", reduction,
                                                   "'; bools can only be overwritten"));
  }
  if (reduction == "mul" || reduction == "max" || reduction == "min") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reduction is '", reduction, "'; it must be none, mul, max or min"));
}

absl::Status CheckDims(const Ints& dims) {
  if (std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shape is ", Shape(dims).ToString(), "; a dim must not be negative"));
}

void AppendPartials(const OpContext& ctx, FactorRule& rule) {
  if (!HasSums(ctx.inputs[0].dtype)) return;
  const std::string& reduction = ctx.attrs.String("reduction");
  // Overwriting is linear in both; a product in one of them at a time.
  if (reduction == "none") rule.passages.push_back({.inputs = {0, 2}});
  if (reduction == "mul") rule.passages.push_back({.inputs = {0}});
  if (reduction == "max") rule.passages.push_back({.inputs = {0, 2}, .partial = sbp::Pmax});
  if (reduction == "min") rule.passages.push_back({.inputs = {0, 2}, .partial = sbp::Pmin});
}

void AppendSplitUpdates(const OpContext& ctx, int axis, FactorRule& rule) {
  const std::string& reduction = ctx.attrs.String("reduction");
  if (reduction != "max" && reduction != "min") return;
  rule.factors.push_back({.inputs = {Factor::kAbsent, axis, axis},
                          .outputs = {Factor::kAbsent},
                          .partial = reduction == "max" ? sbp::Pmax : sbp::Pmin});
}

Gradients ScatterGradient(const Context& c, const Places& at) {
  const std::string& reduction = c.op.attrs.String("reduction");
  if (reduction == "none") return OverwriteGradient(c, at);
  if (reduction == "mul") return ProductGradient(c, at);
  return ExtremeGradient(c, at);
}

Tensor Numbered(const Context& c, Shape shape, int64_t axis) {
  const bool is_long =
      shape.rank() > 0 && shape[static_cast<int>(axis)] > std::numeric_limits<int32_t>::max();
  return Iota(c.graph, {is_long ? DType::kI64 : DType::kI32, std::move(shape)}, axis);
}

Tensor Unset(const Context& c, DType dtype, Shape shape) {
  return Constant(c.graph, -1, {.dtype = dtype, .shape = std::move(shape)});
}

}  // namespace braid
