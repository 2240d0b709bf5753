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

// logits [..., c], labels, max [...], sum [...] and, for a gradient, dloss [...].
absl::Status Check(const OpContext& ctx, bool is_sparse, int inputs) {
  RETURN_IF_ERROR(CheckInputs(ctx, inputs));
  RETURN_IF_ERROR(CheckFloating(ctx, 0));
  RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
  const Shape rows = Leading(ctx.inputs[0].shape, 1);
  if (is_sparse) {
    RETURN_IF_ERROR(CheckInteger(ctx, 1));
    RETURN_IF_ERROR(CheckShape(ctx, 1, rows));
  } else {
    RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
  }
  if (ctx.attrs.Has("label_smoothing")) {
    const double smoothing = ctx.attrs.Double("label_smoothing");
    if (!(smoothing >= 0 && smoothing <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("label_smoothing is ", smoothing, ", it must be from 0 to 1"));
    }
  }
  for (int i = 2; i < inputs; ++i) {
    RETURN_IF_ERROR(CheckSameDType(ctx, 0, i));
    RETURN_IF_ERROR(CheckShape(ctx, i, rows));
  }
  return absl::OkStatus();
}

// With the classes split: labels are split with them if they are probabilities.
SbpSignature SplitClasses(const OpContext& ctx, bool is_sparse, Sbp output) {
  const Sbp classes = sbp::S(ctx.inputs[0].shape.rank() - 1);
  SbpSignature signature;
  signature.inputs.assign(ctx.inputs.size(), sbp::B);
  signature.inputs[0] = classes;
  if (!is_sparse) signature.inputs[1] = classes;
  signature.outputs = {output};
  return signature;
}

// Losses with class numbers: ignore_index, whose rows are 0, and label_smoothing may be left out.
OpDef& AddSparseSample(OpDef& def) {
  OpSample sample = def.samples()[0];
  sample.attrs = {{"ignore_index", int64_t{2}}, {"label_smoothing", 0.25}};
  return def.Sample(std::move(sample));
}

double Flops(const OpContext& ctx) { return 4.0 * ctx.inputs[0].shape.num_elements(); }

OpDef LossOp(std::string name, bool is_sparse) {
  OpDef def =
      OpDef(std::move(name))
          .Infer([is_sparse](const OpContext& ctx) -> Types {
            RETURN_IF_ERROR(Check(ctx, is_sparse, 4));
            return std::vector<TensorType>{{ctx.inputs[0].dtype, Leading(ctx.inputs[0].shape, 1)}};
          })
          .Signatures([is_sparse](const OpContext& ctx, int64_t) {
            std::vector<SbpSignature> signatures =
                LeadingSignatures(ctx, ctx.outputs[0].shape.rank());
            signatures.push_back(SplitClasses(ctx, is_sparse, sbp::P));
            return signatures;
          })
          .Flops(Flops)
          .Sample({.inputs = {Logits(), is_sparse ? Labels() : Logits(), Rows(), Rows()},
                   .attrs = {},
                   .low = 0.5,
                   .high = 2,
                   .int_high = 6,
                   .check_gradient = false});
  return is_sparse ? AddSparseSample(def) : def;
}

OpDef LossGradientOp(std::string name, bool is_sparse) {
  OpDef def =
      OpDef(std::move(name))
          .Infer([is_sparse](const OpContext& ctx) -> Types {
            RETURN_IF_ERROR(Check(ctx, is_sparse, 5));
            return std::vector<TensorType>{ctx.inputs[0]};
          })
          .Signatures([is_sparse](const OpContext& ctx, int64_t) {
            const int classes = ctx.inputs[0].shape.rank() - 1;
            std::vector<SbpSignature> signatures = LeadingSignatures(ctx, classes);
            signatures.push_back(SplitClasses(ctx, is_sparse, sbp::S(classes)));
            return signatures;
          })
          .Linear({4})
          .NoGradient()
          .Flops(Flops)
          .Sample({.inputs = {Logits(), is_sparse ? Labels() : Logits(), Rows(), Rows(), Rows()},
                   .attrs = {},
                   .low = 0.5,
                   .high = 2,
                   .int_high = 6});
  return is_sparse ? AddSparseSample(def) : def;
}

// exp(x - max) summed over the last axis.
OpDef SumExpOp() {
  return OpDef("sum_exp")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckMinRank(ctx, 0, 1));
        RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
        RETURN_IF_ERROR(CheckShape(ctx, 1, Leading(ctx.inputs[0].shape, 1)));
        return std::vector<TensorType>{ctx.inputs[1]};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        const int classes = ctx.inputs[0].shape.rank() - 1;
        std::vector<SbpSignature> signatures = LeadingSignatures(ctx, classes);
        signatures.push_back({{sbp::S(classes), sbp::B}, {sbp::P}});
        return signatures;
      })
      .Gradient([](const Context& c) {
        const Tensor x = c.inputs[0], max = c.inputs[1], dy = c.output_gradients[0];
        const Tensor exps = Exp(Sub(x, ExpandDims(max, -1)));
        return Gradients{Mul(exps, ExpandDims(dy, -1)), Neg(Mul(c.outputs[0], dy))};
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
