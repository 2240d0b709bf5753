// Arithmetic, comparison and logic: every element by itself.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"
#include "graph/ops/shapes.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

OpDef Comparison(std::string name) {
  return OpDef(std::move(name))
      .Rule("...,...->...")
      .Takes("xx")
      .Gives(DType::kBool)
      .NoGradient()
      .Parts(BroadcastParts)
      .Sample({.inputs = {SampleMatrix(), SampleMatrix()}, .attrs = {}})
      .Sample({.inputs = {SampleMatrix(DType::kI32), {DType::kI32, {6}}}, .attrs = {}});
}

OpDef Logical(std::string name, int inputs) {
  return OpDef(std::move(name))
      .Rule(inputs == 1 ? "...->..." : "...,...->...")
      .Takes("bb")
      .NoGradient()
      .Parts(BroadcastParts)
      .Inplace(0, 0)
      .Sample({.inputs = std::vector<TensorType>(inputs, SampleMatrix(DType::kBool)), .attrs = {}});
}

// stop_gradient's gradient is not its derivative, on purpose.
OpDef AnyDType(std::string name, bool check_gradient) {
  return OpDef(std::move(name))
      .Rule("...->...")
      .Linear({0})
      .PassesPartialMaxMin()
      .Parts(CopyParts)
      .Inplace(0, 0)
      .Sample({.inputs = {SampleMatrix()}, .attrs = {}, .check_gradient = check_gradient});
}

Gradients MaximumGradient(const Context& c, Tensor takes_a) {
  const Tensor zero = Constant(c.graph, 0, {.dtype = Dy(c).dtype()});
  return Summed(c, {Where(takes_a, Dy(c), zero), Where(takes_a, zero, Dy(c))});
}

OpDef Arithmetic(std::string name, double low = -1, double high = 1) {
  return Binary(std::move(name), {.accepts = Accepts::kAll, .low = low, .high = high});
}

// Whole numbers are divided towards zero, which does not distribute over addends.
OpDef DivOp() {
  return Arithmetic("div", 0.5, 2)
      .Linear({0}, [](const OpContext& ctx) { return IsFloating(ctx.inputs[0].dtype); })
      .Gradient([](const Context& c) {
        const Tensor da = Div(Dy(c), c.inputs[1]);
        return Summed(c, {da, Neg(Mul(da, c.outputs[0]))});
      });
}

void AppendArithmetic(std::vector<OpDef>& ops) {
  ops.push_back(Arithmetic("add").Linear({0, 1}).Gradient([](const Context& c) {
    return Summed(c, {Dy(c), Dy(c)});
  }));
  ops.push_back(Arithmetic("sub").Linear({0, 1}).Gradient([](const Context& c) {
    const Tensor db = SumTo(Dy(c), c.inputs[1].shape());
    return Gradients{SumTo(Dy(c), c.inputs[0].shape()), Neg(db)};
  }));
  ops.push_back(Arithmetic("mul").Linear({0}).Linear({1}).Gradient([](const Context& c) {
    return Summed(c, {Mul(Dy(c), c.inputs[1]), Mul(Dy(c), c.inputs[0])});
  }));
  ops.push_back(DivOp());
  ops.push_back(Arithmetic("pow", 0.5, 2).Gradient([](const Context& c) {
    const Tensor a = c.inputs[0], b = c.inputs[1];
    return Summed(
        c, {Mul(Dy(c), Mul(b, Pow(a, AddScalar(b, -1)))), Mul(Dy(c), Mul(c.outputs[0], Log(a)))});
  }));
  ops.push_back(Arithmetic("maximum").Gradient(
      [](const Context& c) { return MaximumGradient(c, GreaterEqual(c.inputs[0], c.inputs[1])); }));
  ops.push_back(Arithmetic("minimum").Gradient(
      [](const Context& c) { return MaximumGradient(c, LessEqual(c.inputs[0], c.inputs[1])); }));
}

void AppendUnary(std::vector<OpDef>& ops) {
  const PointwiseOptions numbers = {.accepts = Accepts::kNumbers};
  const PointwiseOptions positive = {.low = 0.5, .high = 2};
  ops.push_back(Unary("neg", numbers).Linear({0}).Gradient([](const Context& c) {
    return Gradients{Neg(Dy(c))};
  }));
  ops.push_back(
      Unary("exp").Gradient([](const Context& c) { return Gradients{Mul(Dy(c), c.outputs[0])}; }));
  ops.push_back(Unary("log", positive).Gradient([](const Context& c) {
    return Gradients{Div(Dy(c), c.inputs[0])};
  }));
  ops.push_back(Unary("sqrt", positive).Gradient([](const Context& c) {
    return Gradients{Scale(Div(Dy(c), c.outputs[0]), 0.5)};
  }));
  ops.push_back(Unary("rsqrt", positive).Gradient([](const Context& c) {
    // y^3 = y / x.
    return Gradients{Scale(Mul(Dy(c), Div(c.outputs[0], c.inputs[0])), -0.5)};
  }));
  ops.push_back(Unary("abs", numbers).Gradient([](const Context& c) {
    return Gradients{Mul(Dy(c), Sign(c.inputs[0]))};
  }));
  ops.push_back(Unary("square", numbers).Gradient([](const Context& c) {
    return Gradients{Scale(Mul(Dy(c), c.inputs[0]), 2)};
  }));
  ops.push_back(Unary("reciprocal", positive).Gradient([](const Context& c) {
    return Gradients{Neg(Mul(Dy(c), Square(c.outputs[0])))};
  }));
  // Zero wherever it is defined.
  ops.push_back(
      Unary("sign", numbers).Gradient([](const Context&) { return Gradients{Tensor()}; }));
  ops.push_back(
      Unary("scale", {.attrs = {{"factor", 0.5}}}).Linear({0}).Gradient([](const Context& c) {
        return Gradients{Scale(Dy(c), c.op.attrs.Double("factor"))};
      }));
  ops.push_back(Unary("add_scalar", {.attrs = {{"value", 0.5}}}).Gradient([](const Context& c) {
    return Gradients{Dy(c)};
  }));
}

}  // namespace

std::vector<OpDef> ElementwiseOps() {
  std::vector<OpDef> ops;
  AppendArithmetic(ops);
  AppendUnary(ops);
  for (const char* name :
       {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
    ops.push_back(Comparison(name));
  }
  ops.push_back(Logical("logical_and", 2));
  ops.push_back(Logical("logical_or", 2));
  ops.push_back(Logical("logical_xor", 2));
  ops.push_back(Logical("logical_not", 1));
  ops.push_back(AnyDType("identity", /*check_gradient=*/true).Gradient([](const Context& c) {
    return Gradients{Dy(c)};
  }));
  ops.push_back(AnyDType("stop_gradient", /*check_gradient=*/false).Gradient([](const Context&) {
    return Gradients{Tensor()};
  }));
  return ops;
}

}  // namespace braid
