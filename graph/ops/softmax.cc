// Softmax and its logarithm over the last axis, which is never split.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// Inputs of one type, the output of the same.
OpDef RowWise(std::string name, int inputs, Attrs attrs) {
  return OpDef(std::move(name))
      .Rule(inputs == 1 ? "N[c]->N[c]" : "N[c],N[c]->N[c]")
      .Takes("ff")
      .Check([](const OpContext& ctx) {
        return CheckMinRank(ctx, 0, Flag(ctx.attrs, "causal") ? 2 : 1);
      })
      .Flops([](const OpContext& ctx) { return 5.0 * ctx.outputs[0].shape.num_elements(); })
      .Sample({.inputs = std::vector<TensorType>(inputs, {DType::kF32, {5, 6}}),
               .attrs = std::move(attrs)});
}

}  // namespace

std::vector<OpDef> SoftmaxOps() {
  const Attrs plain = {{"causal", false}, {"scale", 1.0}};
  const Attrs causal = {{"causal", true}, {"scale", 0.5}};
  const TensorType square = {DType::kF32, {3, 5, 5}};
  return {
      RowWise("softmax", 1, plain)
          .Sample({.inputs = {square}, .attrs = causal})
          .Gradient([](const Context& c) {
            return Gradients{
                Apply("softmax_grad", {c.outputs[0], c.output_gradients[0]}, c.op.attrs)};
          }),
      RowWise("softmax_grad", 2, plain)
          .Sample({.inputs = {square, square}, .attrs = causal})
          .Linear({1})
          .NoGradient(),
      RowWise("log_softmax", 1, {}).Gradient([](const Context& c) {
        return Gradients{Apply("log_softmax_grad", {c.outputs[0], c.output_gradients[0]})};
      }),
      RowWise("log_softmax_grad", 2, {}).Linear({1}).NoGradient(),
  };
}

}  // namespace braid
