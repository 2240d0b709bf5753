// Losses that have kernels of their own: binary cross entropies, the negative log likelihood.
#include <cmath>
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

OpDef BceWithLogitsOp() {
  return Binary("bce_with_logits").Gradient([](const Context& c) {
    const Tensor x = c.inputs[0], target = c.inputs[1];
    return Summed(c, {Mul(Dy(c), Sub(Sigmoid(x), target)), Neg(Mul(Dy(c), x))});
  });
}

OpDef BceOp() {
  return Binary("bce", {.low = 0.1, .high = 0.9}).Gradient([](const Context& c) {
    const Tensor p = c.inputs[0], target = c.inputs[1];
    const double infinity = INFINITY;
    const Tensor spread = Clip(Mul(p, Shift(Neg(p), 1)), 1e-12, infinity);
    const Tensor yes = Clip(Log(p), -100, infinity), no = Clip(Log1p(Neg(p)), -100, infinity);
    return Summed(c, {Mul(Dy(c), Div(Sub(p, target), spread)), Mul(Dy(c), Sub(no, yes))});
  });
}

// x [..., c], labels [...]: -x[..., label]. Rows whose label is ignore_index are 0.
OpDef NllOp() {
  return OpDef("nll")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
        RETURN_IF_ERROR(CheckInteger(ctx, 1));
        const Shape rows = Leading(ctx.inputs[0].shape, 1);
        RETURN_IF_ERROR(CheckShape(ctx, 1, rows));
        return std::vector<TensorType>{{ctx.inputs[0].dtype, rows}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        const int classes = ctx.outputs[0].shape.rank();
        std::vector<SbpSignature> signatures = LeadingSignatures(ctx, classes);
        signatures.push_back({{sbp::S(classes), sbp::B}, {sbp::P}});
        return signatures;
      })
      .Linear({0})
      .Gradient([](const Context& c) {
        Attrs attrs = c.op.attrs;
        const Shape shape = c.inputs[0].shape();
        attrs.Set("size", shape[shape.rank() - 1]);
        return Gradients{Apply("nll_grad", {c.inputs[1], Dy(c)}, attrs), Tensor()};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}, {DType::kI32, {5}}}, .attrs = {}, .int_high = 6})
      .Sample({.inputs = {{DType::kF32, {3, 2, 5}}, {DType::kI64, {3, 2}}},
               .attrs = {{"ignore_index", int64_t{1}}},
               .int_high = 4});
}

// labels [...], dy [...]: [..., size], -dy at the label and 0 elsewhere.
OpDef NllGradOp() {
  return OpDef("nll_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckInteger(ctx, 0));
        RETURN_IF_ERROR(CheckFloating(ctx, 1));
        RETURN_IF_ERROR(CheckShape(ctx, 1, ctx.inputs[0].shape));
        const int64_t size = ctx.attrs.Int("size");
        if (size < 0) return absl::InvalidArgumentError("size is negative");
        std::vector<int64_t> dims = ctx.inputs[0].shape.dims();
        dims.push_back(size);
        return std::vector<TensorType>{{ctx.inputs[1].dtype, Shape(std::move(dims))}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        const int classes = ctx.inputs[0].shape.rank();
        std::vector<SbpSignature> signatures = LeadingSignatures(ctx, classes);
        signatures.push_back({{sbp::B, sbp::B}, {sbp::S(classes)}});
        return signatures;
      })
      .Linear({1})
      .NoGradient()
      .Sample({.inputs = {{DType::kI32, {5}}, {DType::kF32, {5}}},
               .attrs = {{"size", int64_t{6}}},
               .int_high = 4})
      .Sample({.inputs = {{DType::kI64, {3, 2}}, {DType::kF32, {3, 2}}},
               .attrs = {{"size", int64_t{4}}, {"ignore_index", int64_t{1}}},
               .int_high = 4});
}

}  // namespace

std::vector<OpDef> LossOps() { return {BceWithLogitsOp(), BceOp(), NllOp(), NllGradOp()}; }

}  // namespace braid
