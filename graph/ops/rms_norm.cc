// Root mean square normalization over the last axis.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

absl::Status CheckAlike(const OpContext& ctx, int input, const Shape& shape) {
  RETURN_IF_ERROR(CheckSameDType(ctx, 0, input));
  return CheckShape(ctx, input, shape);
}

// x and gamma.
absl::Status CheckOperands(const OpContext& ctx) {
  RETURN_IF_ERROR(CheckFloating(ctx, 0));
  RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
  const Shape& x = ctx.inputs[0].shape;
  return CheckAlike(ctx, 1, {x[x.rank() - 1]});
}

OpDef RmsNormOp() {
  const TensorType rows = {DType::kF32, {5, 6}}, six = {DType::kF32, {6}};
  return OpDef("rms_norm")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckOperands(ctx));
        const TensorType& x = ctx.inputs[0];
        return std::vector<TensorType>{x, {x.dtype, Leading(x.shape, 1)}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int i = 0; i < ctx.inputs[0].shape.rank() - 1; ++i) {
          signatures.push_back(SplitAt({i, -1}, {i, i}));
        }
        return signatures;
      })
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], rstd = c.outputs[1];
        Tensor dx, dgamma;
        if (c.output_gradients[0].valid()) {
          const Gradients gradients =
              ApplyAll("rms_norm_grad", {x, c.inputs[1], rstd, c.output_gradients[0]});
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
      .Sample({.inputs = {{DType::kF32, {3, 5, 6}}, six}, .attrs = {{"epsilon", 1e-2}}});
}

OpDef RmsNormGradientOp() {
  const TensorType rows = {DType::kF32, {5, 6}}, six = {DType::kF32, {6}},
                   five = {DType::kF32, {5}};
  return OpDef("rms_norm_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 4));
        RETURN_IF_ERROR(CheckOperands(ctx));
        RETURN_IF_ERROR(CheckAlike(ctx, 2, Leading(ctx.inputs[0].shape, 1)));
        RETURN_IF_ERROR(CheckSameType(ctx, 0, 3));
        return std::vector<TensorType>{ctx.inputs[0], ctx.inputs[1]};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int i = 0; i < ctx.inputs[0].shape.rank() - 1; ++i) {
          const Sbp s = sbp::S(i);
          signatures.push_back({{s, sbp::B, s, s}, {s, sbp::P}});
        }
        return signatures;
      })
      .Linear({3})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 8.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {rows, six, five, rows}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> RmsNormOps() { return {RmsNormOp(), RmsNormGradientOp()}; }

}  // namespace braid
