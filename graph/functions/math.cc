#include "graph/functions/math.h"

#include <cmath>

#include "graph/functional.h"

namespace braid {

Tensor Sin(Tensor x, SourceLocation where) { return Apply("sin", {x}, {}, where); }
Tensor Cos(Tensor x, SourceLocation where) { return Apply("cos", {x}, {}, where); }
Tensor Tan(Tensor x, SourceLocation where) { return Apply("tan", {x}, {}, where); }
Tensor Asin(Tensor x, SourceLocation where) { return Apply("asin", {x}, {}, where); }
Tensor Acos(Tensor x, SourceLocation where) { return Apply("acos", {x}, {}, where); }
Tensor Atan(Tensor x, SourceLocation where) { return Apply("atan", {x}, {}, where); }
Tensor Sinh(Tensor x, SourceLocation where) { return Apply("sinh", {x}, {}, where); }
Tensor Cosh(Tensor x, SourceLocation where) { return Apply("cosh", {x}, {}, where); }
Tensor Asinh(Tensor x, SourceLocation where) { return Apply("asinh", {x}, {}, where); }
Tensor Acosh(Tensor x, SourceLocation where) { return Apply("acosh", {x}, {}, where); }
Tensor Atanh(Tensor x, SourceLocation where) { return Apply("atanh", {x}, {}, where); }
Tensor Erf(Tensor x, SourceLocation where) { return Apply("erf", {x}, {}, where); }
Tensor Expm1(Tensor x, SourceLocation where) { return Apply("expm1", {x}, {}, where); }
Tensor Log1p(Tensor x, SourceLocation where) { return Apply("log1p", {x}, {}, where); }
Tensor Floor(Tensor x, SourceLocation where) { return Apply("floor", {x}, {}, where); }
Tensor Ceil(Tensor x, SourceLocation where) { return Apply("ceil", {x}, {}, where); }
Tensor Round(Tensor x, SourceLocation where) { return Apply("round", {x}, {}, where); }
Tensor Trunc(Tensor x, SourceLocation where) { return Apply("trunc", {x}, {}, where); }

Tensor IsNan(Tensor x, SourceLocation where) { return Apply("is_nan", {x}, {}, where); }
Tensor IsInf(Tensor x, IsInfOptions options, SourceLocation where) {
  return Apply("is_inf", {x}, {{"negative", options.negative}, {"positive", options.positive}},
               where);
}

Tensor Mod(Tensor a, Tensor b, SourceLocation where) { return Apply("mod", {a, b}, {}, where); }
Tensor Fmod(Tensor a, Tensor b, SourceLocation where) { return Apply("fmod", {a, b}, {}, where); }
Tensor BitwiseAnd(Tensor a, Tensor b, SourceLocation where) {
  return Apply("bitwise_and", {a, b}, {}, where);
}
Tensor BitwiseOr(Tensor a, Tensor b, SourceLocation where) {
  return Apply("bitwise_or", {a, b}, {}, where);
}
Tensor BitwiseXor(Tensor a, Tensor b, SourceLocation where) {
  return Apply("bitwise_xor", {a, b}, {}, where);
}
Tensor BitwiseNot(Tensor x, SourceLocation where) { return Apply("bitwise_not", {x}, {}, where); }
Tensor ShiftLeft(Tensor a, Tensor b, SourceLocation where) {
  return Apply("shift_left", {a, b}, {}, where);
}
Tensor ShiftRight(Tensor a, Tensor b, SourceLocation where) {
  return Apply("shift_right", {a, b}, {}, where);
}
Tensor LogicalXor(Tensor a, Tensor b, SourceLocation where) {
  return Apply("logical_xor", {a, b}, {}, where);
}

Tensor Silu(Tensor x, SourceLocation where) { return Apply("silu", {x}, {}, where); }
Tensor Mish(Tensor x, SourceLocation where) { return Apply("mish", {x}, {}, where); }
Tensor Elu(Tensor x, double alpha, SourceLocation where) {
  return Apply("elu", {x}, {{"alpha", alpha}, {"gamma", 1.0}, {"rate", 1.0}}, where);
}
Tensor Celu(Tensor x, double alpha, SourceLocation where) {
  return Apply("elu", {x}, {{"alpha", alpha}, {"gamma", 1.0}, {"rate", 1 / alpha}}, where);
}
Tensor Selu(Tensor x, SeluOptions options, SourceLocation where) {
  return Apply("elu", {x}, {{"alpha", options.alpha}, {"gamma", options.gamma}, {"rate", 1.0}},
               where);
}
Tensor LeakyRelu(Tensor x, double alpha, SourceLocation where) {
  return Apply("leaky_relu", {x}, {{"alpha", alpha}}, where);
}
Tensor Prelu(Tensor x, Tensor slope, SourceLocation where) {
  const Tensor below = Clip(x, -INFINITY, 0, where);
  return Add(Relu(x, where), Mul(slope, below, where), where);
}
Tensor HardSigmoid(Tensor x, HardSigmoidOptions options, SourceLocation where) {
  return Apply("hard_sigmoid", {x}, {{"alpha", options.alpha}, {"beta", options.beta}}, where);
}
Tensor HardSwish(Tensor x, SourceLocation where) { return Apply("hard_swish", {x}, {}, where); }
Tensor HardTanh(Tensor x, SourceLocation where) { return Clip(x, -1, 1, where); }
Tensor Relu6(Tensor x, SourceLocation where) { return Clip(x, 0, 6, where); }
Tensor Softplus(Tensor x, double beta, SourceLocation where) {
  return Apply("softplus", {x}, {{"beta", beta}}, where);
}
Tensor LogSigmoid(Tensor x, SourceLocation where) { return Apply("log_sigmoid", {x}, {}, where); }
Tensor Softsign(Tensor x, SourceLocation where) { return Apply("softsign", {x}, {}, where); }
Tensor ThresholdedRelu(Tensor x, double alpha, SourceLocation where) {
  return Apply("thresholded_relu", {x}, {{"alpha", alpha}}, where);
}
Tensor Shrink(Tensor x, ShrinkOptions options, SourceLocation where) {
  return Apply("shrink", {x}, {{"lambda", options.lambda}, {"bias", options.bias}}, where);
}

}  // namespace braid
