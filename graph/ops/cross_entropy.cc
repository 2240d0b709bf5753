// Softmax cross entropy over classes that may be split: the maximum (P(max)) and the sum of
// exponentials (P) come first, then a loss that needs only the local classes. The gradient of the
// composite goes to the logits at the last op, none through maximum and sum.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

TensorType Logits() { return {DType::kF32, {5, 6}}; }
TensorType Rows() { return {DType::kF32, {5}}; }
TensorType Labels() { return {DType::kI32, {5}}; }

absl::Status CheckSmoothing(const OpContext& ctx) {
  if (!ctx.attrs.Has("label_smoothing")) return absl::OkStatus();
  const double smoothing = ctx.attrs.Double("label_smoothing");
  if (smoothing >= 0 && smoothing <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("label_smoothing is ", smoothing, ", it must be from 0 to 1"));
}

// Losses with class numbers: ignore_index, whose rows are 0, and label_smoothing may be left out.
OpDef& AddSparseSample(OpDef& def) {
  OpSample sample = def.samples()[0];
  sample.attrs = {{"ignore_index", int64_t{2}}, {"label_smoothing", 0.25}};
  return def.Sample(std::move(sample));
}

// What rows have (maximum, sum, loss and its gradient) is of the logits' type, or f32 of narrow
// ones. Input `rows` is some of it.
absl::Status CheckRowType(const OpContext& ctx, int rows) {
  const DType logits = ctx.inputs[0].dtype;
  if (IsNarrow(logits) && ctx.inputs[rows].dtype == DType::kF32) return absl::OkStatus();
  return CheckSameDType(ctx, 0, rows);
}
absl::Status CheckSparse(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckRowType(ctx, 2));
  return CheckSmoothing(ctx);
}

double Flops(const OpContext& ctx) { return 4.0 * ctx.inputs[0].shape.num_elements(); }

// logits [..., c], labels, max [...], sum [...] and, for a gradient, dloss [...]. Labels are
// numbers of classes, or probabilities, which are split with the classes.
OpDef LossOp(std::string name, bool is_sparse) {
  OpDef def = OpDef(std::move(name))
                  .Rule(is_sparse ? "Nc,N,N,N->N" : "Nc,Nc,N,N->N")
                  .Takes(is_sparse ? "fixx" : "ffff")
                  .Gives([](const OpContext& ctx) { return ctx.inputs[2].dtype; })
                  .Check(is_sparse ? CheckSparse : CheckSmoothing)
                  .Flops(Flops)
                  .Sample({.inputs = {Logits(), is_sparse ? Labels() : Logits(), Rows(), Rows()},
                           .attrs = {},
                           .low = 0.5,
                           .high = 2,
                           .int_high = 6,
                           .check_gradient = false});
  return is_sparse ? AddSparseSample(def.KeepsNarrow({0})) : def;
}

OpDef LossGradientOp(std::string name, bool is_sparse) {
  OpDef def =
      OpDef(std::move(name))
          .Rule(is_sparse ? "Nc,N,N,N,N->Nc" : "Nc,Nc,N,N,N->Nc")
          .Takes(is_sparse ? "fixxx" : "fffff")
          .Check(is_sparse ? CheckSparse : CheckSmoothing)
          .Linear({4})
          .NoGradient()
          .Flops(Flops)
          .Sample({.inputs = {Logits(), is_sparse ? Labels() : Logits(), Rows(), Rows(), Rows()},
                   .attrs = {},
                   .low = 0.5,
                   .high = 2,
                   .int_high = 6});
  return is_sparse ? AddSparseSample(def.KeepsNarrow({0})) : def;
}

// exp(x - max) summed over the last axis.
OpDef SumExpOp() {
  return OpDef("sum_exp")
      .Rule("Nc,N->N")
      .Takes("fx")
      .Gives([](const OpContext& ctx) { return ctx.inputs[1].dtype; })
      .Check([](const OpContext& ctx) { return CheckRowType(ctx, 1); })
      .KeepsNarrow({0})
      .Gradient([](const Context& c) {
        const Tensor max = c.inputs[1], dy = c.output_gradients[0];
        const Tensor x = Cast(c.inputs[0], max.dtype());
        const Tensor dx = Mul(Exp(Sub(x, ExpandDims(max, -1))), ExpandDims(dy, -1));
        return Gradients{Cast(dx, c.inputs[0].dtype()), Neg(Mul(c.outputs[0], dy))};
      })
      .Flops([](const OpContext& ctx) { return 3.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {Logits(), Rows()}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> CrossEntropyOps() {
  return {
      SumExpOp(),
      LossOp("sparse_softmax_cross_entropy", true).Gradient([](const Context& c) {
        std::vector<Tensor> inputs = c.inputs;
        inputs.push_back(c.output_gradients[0]);
        return Gradients{Apply("sparse_softmax_cross_entropy_grad", inputs, c.op.attrs), Tensor(),
                         Tensor(), Tensor()};
      }),
      LossOp("softmax_cross_entropy", false).Linear({1}).Gradient([](const Context& c) {
        std::vector<Tensor> inputs = c.inputs;
        inputs.push_back(c.output_gradients[0]);
        // d loss / d probability = log(sum) + max - logit.
        const Tensor log_sum = ExpandDims(Add(Log(c.inputs[3]), c.inputs[2]), -1);
        const Tensor dloss = ExpandDims(c.output_gradients[0], -1);
        const Tensor dlabels = Mul(Sub(log_sum, c.inputs[0]), dloss);
        return Gradients{Apply("softmax_cross_entropy_grad", inputs), dlabels, Tensor(), Tensor()};
      }),
      LossGradientOp("sparse_softmax_cross_entropy_grad", true),
      LossGradientOp("softmax_cross_entropy_grad", false),
  };
}

}  // namespace braid
