// Elementary functions, rounding, remainders, bits: every element by itself.
#include <utility>

#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/pointwise.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

Tensor X(const Context& c) { return c.inputs[0]; }
Tensor Y(const Context& c) { return c.outputs[0]; }

// dy / sqrt(x^2 + shift), or with the sign turned, dy / sqrt(shift - x^2).
Tensor OverRoot(const Context& c, double sign, double shift) {
  return Mul(Dy(c), Rsqrt(AddScalar(Scale(Square(X(c)), sign), shift)));
}

void AppendTrigonometry(std::vector<OpDef>& ops) {
  const PointwiseOptions wide = {.low = -2, .high = 2}, inside = {.low = -0.9, .high = 0.9};
  ops.push_back(Unary("sin", wide).Gradient([](const Context& c) {
    return Gradients{Mul(Dy(c), Cos(X(c)))};
  }));
  ops.push_back(Unary("cos", wide).Gradient([](const Context& c) {
    return Gradients{Neg(Mul(Dy(c), Sin(X(c))))};
  }));
  ops.push_back(Unary("tan").Gradient(
      [](const Context& c) { return Gradients{Mul(Dy(c), AddScalar(Square(Y(c)), 1))}; }));
  ops.push_back(Unary("asin", inside).Gradient([](const Context& c) {
    return Gradients{OverRoot(c, -1, 1)};
  }));
  ops.push_back(Unary("acos", inside).Gradient([](const Context& c) {
    return Gradients{Neg(OverRoot(c, -1, 1))};
  }));
  ops.push_back(Unary("atan", wide).Gradient([](const Context& c) {
    return Gradients{Div(Dy(c), AddScalar(Square(X(c)), 1))};
  }));
  ops.push_back(Unary("sinh", wide).Gradient([](const Context& c) {
    return Gradients{Mul(Dy(c), Cosh(X(c)))};
  }));
  ops.push_back(Unary("cosh", wide).Gradient([](const Context& c) {
    return Gradients{Mul(Dy(c), Sinh(X(c)))};
  }));
  ops.push_back(
      Unary("asinh", wide).Gradient([](const Context& c) { return Gradients{OverRoot(c, 1, 1)}; }));
  ops.push_back(Unary("acosh", {.low = 1.25, .high = 3}).Gradient([](const Context& c) {
    return Gradients{OverRoot(c, 1, -1)};
  }));
  ops.push_back(Unary("atanh", inside).Gradient([](const Context& c) {
    return Gradients{Div(Dy(c), AddScalar(Neg(Square(X(c))), 1))};
  }));
}

void AppendExponentials(std::vector<OpDef>& ops) {
  ops.push_back(Unary("erf", {.low = -2, .high = 2}).Gradient([](const Context& c) {
    constexpr double kTwoOverRootPi = 1.1283791670955126;
    return Gradients{Mul(Dy(c), Scale(Exp(Neg(Square(X(c)))), kTwoOverRootPi))};
  }));
  ops.push_back(Unary("expm1").Gradient(
      [](const Context& c) { return Gradients{Mul(Dy(c), AddScalar(Y(c), 1))}; }));
  ops.push_back(Unary("log1p", {.low = -0.75, .high = 2}).Gradient([](const Context& c) {
    return Gradients{Div(Dy(c), AddScalar(X(c), 1))};
  }));
}

// Flat wherever they are continuous.
void AppendRounding(std::vector<OpDef>& ops) {
  for (const char* name : {"floor", "ceil", "round", "trunc"}) {
    ops.push_back(Unary(name, {.low = -4, .high = 4}).Gradient([](const Context&) {
      return Gradients{Tensor()};
    }));
  }
}

// a - b * round(a / b): `round` is floor for the sign of b, trunc for the sign of a.
void AppendRemainders(std::vector<OpDef>& ops) {
  const PointwiseOptions options = {.accepts = Accepts::kAll, .low = 0.5, .high = 2};
  ops.push_back(Binary("mod", options).Gradient([](const Context& c) {
    return Summed(c, {Dy(c), Neg(Mul(Dy(c), Floor(Div(c.inputs[0], c.inputs[1]))))});
  }));
  ops.push_back(Binary("fmod", options).Gradient([](const Context& c) {
    return Summed(c, {Dy(c), Neg(Mul(Dy(c), Trunc(Div(c.inputs[0], c.inputs[1]))))});
  }));
}

OpDef ToBool(std::string name, Attrs attrs) {
  return OpDef(std::move(name))
      .Rule("...->...")
      .Takes("f")
      .Gives(DType::kBool)
      .NoGradient()
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = std::move(attrs)});
}

void AppendBits(std::vector<OpDef>& ops) {
  const PointwiseOptions integers = {.accepts = Accepts::kIntegers};
  for (const char* name :
       {"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}) {
    ops.push_back(
        Binary(name, integers)
            .NoGradient()
            .Sample({.inputs = {{DType::kU8, {5, 6}}, {DType::kU8, {5, 6}}}, .int_high = 200}));
  }
  ops.push_back(Unary("bitwise_not", integers)
                    .NoGradient()
                    .Sample({.inputs = {{DType::kU8, {5, 6}}}, .int_high = 200}));
}

}  // namespace

std::vector<OpDef> MathOps() {
  std::vector<OpDef> ops;
  AppendTrigonometry(ops);
  AppendExponentials(ops);
  AppendRounding(ops);
  AppendRemainders(ops);
  AppendBits(ops);
  ops.push_back(ToBool("is_nan", {}));
  ops.push_back(ToBool("is_inf", {{"negative", true}, {"positive", true}}));
  return ops;
}

}  // namespace braid
