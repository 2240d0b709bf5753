// Root mean square normalization over the last axis.

#include "graph/functional.h"
#include "graph/ops/families.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

OpDef RmsNormOp() {
  const TensorType rows = {DType::kF32, {5, 6}}, six = {DType::kF32, {6}};
  return OpDef("rms_norm")
      .Rule("N[c],[c]->N[c],N")
      .Takes("ff")
      .MakesNarrow()
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], rstd = c.outputs[1];
        Tensor dx, dgamma;
        if (c.output_gradients[0].valid()) {
          const Tensor dy = Cast(c.output_gradients[0], x.dtype());
          const Gradients gradients = ApplyAll("rms_norm_grad", {x, c.inputs[1], rstd, dy});
          dx = gradients[0], dgamma = gradients[1];
        }
        if (c.output_gradients[1].valid()) {
          // d rstd / d x = -rstd^3 x / c.
          const double channels = x.shape()[x.shape().rank() - 1];
          const Tensor row =
              Scale(Mul(c.output_gradients[1], Mul(rstd, Square(rstd))), -1 / channels);
          const Tensor term = Mul(x, ExpandDims(row, -1));
          dx = dx.valid() ? Add(dx, term) : term;
        }
        return Gradients{dx, dgamma};
      })
      .Flops([](const OpContext& ctx) { return 4.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {rows, six}, .attrs = {{"epsilon", 1e-5}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 6}}, six}, .attrs = {{"epsilon", 1e-2}}})
      .Sample({.inputs = {rows, six}, .attrs = {{"epsilon", 1e-5}, {"dtype", DType::kF32}}});
}

OpDef RmsNormGradientOp() {
  const TensorType rows = {DType::kF32, {5, 6}}, six = {DType::kF32, {6}},
                   five = {DType::kF32, {5}};
  return OpDef("rms_norm_grad")
      .Rule("N[c],[c],N,N[c]->N[c],[c]")
      .Takes("ffff")
      .Linear({3})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 8.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {rows, six, five, rows}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> RmsNormOps() { return {RmsNormOp(), RmsNormGradientOp()}; }

}  // namespace braid
