// What one step of a recurrent layer does unit by unit: the gates' terms from the input, `x`, and
// from the last state, `r`, come from matmuls and stand side by side, [batch, gates, units].

#include "graph/functional.h"
#include "graph/ops/families.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

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
      .Rule("b4u,b4u,bu->bu,bu")
      .Takes("fff")
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
      .Rule("b4u,b4u,bu,bu,bu,bu->b4u,bu")
      .Takes("ffffff")
      .Linear({4, 5})
      .NoGradient()
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 60); })
      .Sample({.inputs = {Gates(4), Gates(4), State(), State(), State(), State()}, .attrs = {}});
}

// Gates r, z, n: n' = tanh(x_n + sigmoid(r) r_n), h = n' + sigmoid(z) (last_h - n').
OpDef GruCellOp() {
  return OpDef("gru_cell")
      .Rule("b3u,b3u,bu->bu")
      .Takes("fff")
      .Gradient([](const Context& c) {
        return ApplyAll("gru_cell_grad",
                        {c.inputs[0], c.inputs[1], c.inputs[2], c.output_gradients[0]});
      })
      .Flops([](const OpContext& ctx) { return PerUnit(ctx, 30); })
      .Sample({.inputs = {Gates(3), Gates(3), State()}, .attrs = {}});
}

OpDef GruCellGradientOp() {
  return OpDef("gru_cell_grad")
      .Rule("b3u,b3u,bu,bu->b3u,b3u,bu")
      .Takes("ffff")
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
