// Layer normalization over the last axis.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

TensorType Rows() { return {DType::kF32, {5, 6}}; }
TensorType Six() { return {DType::kF32, {6}}; }
TensorType Five() { return {DType::kF32, {5}}; }

absl::Status CheckAlike(const OpContext& ctx, int input, const Shape& shape) {
  RETURN_IF_ERROR(CheckSameDType(ctx, 0, input));
  return CheckShape(ctx, input, shape);
}

OpDef LayerNormOp() {
  return OpDef("layer_norm")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 3));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
        const TensorType& x = ctx.inputs[0];
        const Shape channels = {x.shape[x.shape.rank() - 1]};
        RETURN_IF_ERROR(CheckAlike(ctx, 1, channels));
        RETURN_IF_ERROR(CheckAlike(ctx, 2, channels));
        const TensorType rows = {x.dtype, Leading(x.shape, 1)};
        return std::vector<TensorType>{x, rows, rows};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int i = 0; i < ctx.inputs[0].shape.rank() - 1; ++i) {
          signatures.push_back(SplitAt({i, -1, -1}, {i, i, i}));
        }
        return signatures;
      })
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], mean = c.outputs[1], rstd = c.outputs[2];
        const Tensor dy = c.output_gradients[0];
        Tensor dx, dgamma, dbeta;
        if (dy.valid()) {
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
      .Flops([](const OpContext& ctx) { return 7.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Rows(), Six(), Six()}, .attrs = {{"epsilon", 1e-5}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 6}}, Six(), Six()}, .attrs = {{"epsilon", 1e-2}}});
}

OpDef LayerNormGradientOp() {
  return OpDef("layer_norm_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 5));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
        const TensorType& x = ctx.inputs[0];
        RETURN_IF_ERROR(CheckAlike(ctx, 1, {x.shape[x.shape.rank() - 1]}));
        RETURN_IF_ERROR(CheckAlike(ctx, 2, Leading(x.shape, 1)));
        RETURN_IF_ERROR(CheckAlike(ctx, 3, Leading(x.shape, 1)));
        RETURN_IF_ERROR(CheckSameType(ctx, 0, 4));
        return std::vector<TensorType>{x, ctx.inputs[1], ctx.inputs[1]};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        for (int i = 0; i < ctx.inputs[0].shape.rank() - 1; ++i) {
          const Sbp s = sbp::S(i);
          signatures.push_back({{s, sbp::B, s, s, s}, {s, sbp::P, sbp::P}});
        }
        return signatures;
      })
      .Linear({4})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return 12.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Rows(), Six(), Five(), Five(), Rows()}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> NormalizationOps() { return {LayerNormOp(), LayerNormGradientOp()}; }

}  // namespace braid
