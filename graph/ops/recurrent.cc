// What one step of a recurrent layer does unit by unit: the gates' terms from the input, `x`, and
// from the last state, `r`, come from matmuls and stand side by side, [batch, gates, units].
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

// x, r [batch, gates, units], then `states` of [batch, units].
absl::Status CheckCell(const OpContext& ctx, int64_t gates, int states) {
  RETURN_IF_ERROR(CheckInputs(ctx, 2 + states));
  RETURN_IF_ERROR(CheckFloating(ctx, 0));
  const Shape& x = ctx.inputs[0].shape;
  if (x.rank() != 3 || x[1] != gates) {
    return absl::InvalidArgumentError(
        absl::StrCat("a is ", ctx.inputs[0].ToString(), "; [batch, ", gates, ", units] is needed"));
  }
  RETURN_IF_ERROR(CheckSameType(ctx, 0, 1));
  for (int input = 2; input < 2 + states; ++input) {
    RETURN_IF_ERROR(CheckSameDType(ctx, 0, input));
    RETURN_IF_ERROR(CheckShape(ctx, input, {x[0], x[2]}));
  }
  return absl::OkStatus();
}

// The batch, or the units.
std::vector<SbpSignature> CellSignatures(const OpContext& ctx, int64_t) {
  std::vector<SbpSignature> signatures;
  for (const bool by_unit : {false, true}) {
    const auto sbp = [by_unit](const TensorType& type) {
      return sbp::S(by_unit ? type.shape.rank() - 1 : 0);
    };
    SbpSignature signature;
    for (const TensorType& type : ctx.inputs) signature.inputs.push_back(sbp(type));
    for (const TensorType& type : ctx.outputs) signature.outputs.push_back(sbp(type));
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

TensorType Gates(int64_t gates) { return {DType::kF32, {5, gates, 6}}; }
TensorType State() { return {DType::kF32, {5, 6}}; }

// The gradient, or zeros.
Tensor OrZeros(const Context& c, int output) {
  if (c.output_gradients[output].valid()) return c.output_gradients[output];
  const TensorType type = c.outputs[output].type();
  return Constant(c.graph, 0, {.dtype = type.dtype, .shape = type.shape});
}

double PerUnit(const OpContext& ctx, double flops) {
  return flops * static_cast<double>(ctx.inputs[2].shape.num_elements());
}

// Gates i, f, g, o: c = sigmoid(f) last_c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c).
OpDef LstmCellOp() {
  return OpDef("lstm_cell")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckCell(ctx, 4, 1));
        return std::vector<TensorType>{ctx.inputs[2], ctx.inputs[2]};
      })
      .Signatures(CellSignatures)
      .Gradient([](const Context& c) {
        const Gradients gradients = ApplyAll(
            "lstm_cell_grad",
            {c.inputs[0], c.inputs[1], c.inputs[2], c.outputs[1], OrZeros(c, 0), OrZeros(c, 1)});
        return Gradients{gradients[0], gradients[0], gradients[1]};
      })
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 40); })
      .Sample({.inputs = {Gates(4), Gates(4), State()}, .attrs = {}});
}

// x, r, last_c, c, dh, dc -> the gradient of x, which is that of r too, and of last_c.
OpDef LstmCellGradientOp() {
  return OpDef("lstm_cell_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckCell(ctx, 4, 4));
        return std::vector<TensorType>{ctx.inputs[0], ctx.inputs[2]};
      })
      .Signatures(CellSignatures)
      .Linear({4, 5})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 60); })
      .Sample({.inputs = {Gates(4), Gates(4), State(), State(), State(), State()}, .attrs = {}});
}

// Gates r, z, n: n' = tanh(x_n + sigmoid(r) r_n), h = n' + sigmoid(z) (last_h - n').
OpDef GruCellOp() {
  return OpDef("gru_cell")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckCell(ctx, 3, 1));
        return std::vector<TensorType>{ctx.inputs[2]};
      })
      .Signatures(CellSignatures)
      .Gradient([](const Context& c) {
        return ApplyAll("gru_cell_grad",
                        {c.inputs[0], c.inputs[1], c.inputs[2], c.output_gradients[0]});
      })
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 30); })
      .Sample({.inputs = {Gates(3), Gates(3), State()}, .attrs = {}});
}

OpDef GruCellGradientOp() {
  return OpDef("gru_cell_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckCell(ctx, 3, 2));
        return std::vector<TensorType>{ctx.inputs[0], ctx.inputs[1], ctx.inputs[2]};
      })
      .Signatures(CellSignatures)
      .Linear({3})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 50); })
      .Sample({.inputs = {Gates(3), Gates(3), State(), State()}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> RecurrentOps() {
  return {LstmCellOp(), LstmCellGradientOp(), GruCellOp(), GruCellGradientOp()};
}

}  // namespace braid
