// Layer normalization over the last axis.

#include "graph/functional.h"
#include "graph/ops/families.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

TensorType Rows() { return {DType::kF32, {5, 6}}; }
TensorType Six() { return {DType::kF32, {6}}; }
TensorType Five() { return {DType::kF32, {5}}; }

OpDef LayerNormOp() {
  return OpDef("layer_norm")
      .Rule("N[c],[c],[c]->N[c],N,N")
      .Takes("fff")
      .MakesNarrow()
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], mean = c.outputs[1], rstd = c.outputs[2];
        Tensor dx, dgamma, dbeta;
        if (c.output_gradients[0].valid()) {
          const Tensor dy = Cast(c.output_gradients[0], x.dtype());
          const Gradients gradients = ApplyAll("layer_norm_grad", {x, c.inputs[1], mean, rstd, dy});
          dx = gradients[0], dgamma = gradients[1], dbeta = gradients[2];
        }
        // mean and rstd are seldom used by themselves, but then their gradients count too.
        Tensor extra;
        const double channels = x.shape()[x.shape().rank() - 1];
        if (c.output_gradients[1].valid()) {
          extra =
              BroadcastTo(ExpandDims(Scale(c.output_gradients[1], 1 / channels), -1), x.shape());
        }
        if (c.output_gradients[2].valid()) {
          // d rstd / d x = -rstd^3 (x - mean) / c.
          const Tensor row =
              Scale(Mul(c.output_gradients[2], Mul(rstd, Square(rstd))), -1 / channels);
          const Tensor centered = Sub(x, ExpandDims(mean, -1));
          const Tensor term = Mul(centered, ExpandDims(row, -1));
          extra = extra.valid() ? Add(extra, term) : term;
        }
        if (extra.valid()) dx = dx.valid() ? Add(dx, extra) : extra;
        return Gradients{dx, dgamma, dbeta};
      })
      .Parts(RowParts)
      .Flops([](const OpContext& ctx) { return 7.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Rows(), Six(), Six()}, .attrs = {{"epsilon", 1e-5}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 6}}, Six(), Six()}, .attrs = {{"epsilon", 1e-2}}})
      .Sample(
          {.inputs = {Rows(), Six(), Six()}, .attrs = {{"epsilon", 1e-5}, {"dtype", DType::kF32}}});
}

OpDef LayerNormGradientOp() {
  return OpDef("layer_norm_grad")
      .Rule("N[c],[c],N,N,N[c]->N[c],[c],[c]")
      .Takes("fffff")
      .Linear({4})
      .NoGradient()
      .Parts(RowParts)
      .Flops([](const OpContext& ctx) { return 12.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Rows(), Six(), Five(), Five(), Rows()}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> NormalizationOps() { return {LayerNormOp(), LayerNormGradientOp()}; }

}  // namespace braid
