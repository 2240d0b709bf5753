// Losses that have kernels of their own: binary cross entropies, the negative log likelihood.
#include <cmath>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"

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
    const Tensor spread = Clip(Mul(p, AddScalar(Neg(p), 1)), 1e-12, infinity);
    const Tensor yes = Clip(Log(p), -100, infinity), no = Clip(Log1p(Neg(p)), -100, infinity);
    return Summed(c, {Mul(Dy(c), Div(Sub(p, target), spread)), Mul(Dy(c), Sub(no, yes))});
  });
}

// x [..., c], labels [...]: -x[..., label]. Rows whose label is ignore_index are 0.
OpDef NllOp() {
  return OpDef("nll")
      .Rule("Nc,N->N")
      .Takes("fi")
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
      .Rule("N,N->Nc{size}")
      .Takes("if")
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
