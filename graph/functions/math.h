// A part of functional.h: elementary functions, activations, bits.
#pragma once

#include "graph/logical_graph.h"

namespace braid {

// ---- Elementary functions of floating x, element by element; radians ----------------------------

Tensor Sin(Tensor x, SourceLocation where = Here());
Tensor Cos(Tensor x, SourceLocation where = Here());
Tensor Tan(Tensor x, SourceLocation where = Here());
Tensor Asin(Tensor x, SourceLocation where = Here());
Tensor Acos(Tensor x, SourceLocation where = Here());
Tensor Atan(Tensor x, SourceLocation where = Here());
Tensor Sinh(Tensor x, SourceLocation where = Here());
Tensor Cosh(Tensor x, SourceLocation where = Here());
Tensor Asinh(Tensor x, SourceLocation where = Here());
Tensor Acosh(Tensor x, SourceLocation where = Here());
Tensor Atanh(Tensor x, SourceLocation where = Here());
Tensor Erf(Tensor x, SourceLocation where = Here());
Tensor Expm1(Tensor x, SourceLocation where = Here());  // exp(x) - 1
Tensor Log1p(Tensor x, SourceLocation where = Here());  // log(1 + x)
// No gradient flows through what rounds.
Tensor Floor(Tensor x, SourceLocation where = Here());
Tensor Ceil(Tensor x, SourceLocation where = Here());
Tensor Round(Tensor x, SourceLocation where = Here());  // halves to even
Tensor Trunc(Tensor x, SourceLocation where = Here());  // towards zero

// bool, of floating x.
Tensor IsNan(Tensor x, SourceLocation where = Here());
struct IsInfOptions {
  bool negative = true;
  bool positive = true;
};
Tensor IsInf(Tensor x, IsInfOptions options = {}, SourceLocation where = Here());

// ---- Remainders and bits: a and b broadcast and have one dtype ----------------------------------

// What is left of a / b, with the sign of b (Mod) or of a (Fmod). Whole numbers: 0 where b is 0.
Tensor Mod(Tensor a, Tensor b, SourceLocation where = Here());
Tensor Fmod(Tensor a, Tensor b, SourceLocation where = Here());
// i32, i64 and u8.
Tensor BitwiseAnd(Tensor a, Tensor b, SourceLocation where = Here());
Tensor BitwiseOr(Tensor a, Tensor b, SourceLocation where = Here());
Tensor BitwiseXor(Tensor a, Tensor b, SourceLocation where = Here());
Tensor BitwiseNot(Tensor x, SourceLocation where = Here());
// By b bits; a count that is negative or not below the width shifts everything out. To the right
// the sign comes in.
Tensor ShiftLeft(Tensor a, Tensor b, SourceLocation where = Here());
Tensor ShiftRight(Tensor a, Tensor b, SourceLocation where = Here());
Tensor LogicalXor(Tensor a, Tensor b, SourceLocation where = Here());  // on bools

// ---- Activations of floating x, element by element ----------------------------------------------

// x * sigmoid(x), also called swish: Elfwing et al., arXiv 1702.03118.
Tensor Silu(Tensor x, SourceLocation where = Here());
// x * tanh(softplus(x)): Misra, arXiv 1908.08681.
Tensor Mish(Tensor x, SourceLocation where = Here());
// x above 0, else alpha * (exp(x) - 1): Clevert et al., arXiv 1511.07289.
Tensor Elu(Tensor x, double alpha = 1, SourceLocation where = Here());
// x above 0, else alpha * (exp(x / alpha) - 1), alpha not 0: Barron, arXiv 1704.07483.
Tensor Celu(Tensor x, double alpha = 1, SourceLocation where = Here());
// gamma * Elu(x, alpha): Klambauer et al., arXiv 1706.02515.
struct SeluOptions {
  double alpha = 1.6732632423543772;
  double gamma = 1.0507009873554805;
};
Tensor Selu(Tensor x, SeluOptions options = {}, SourceLocation where = Here());
// x from 0 on, else alpha * x.
Tensor LeakyRelu(Tensor x, double alpha = 0.01, SourceLocation where = Here());
// The same with a slope that is learned and broadcasts with x: He et al., arXiv 1502.01852.
Tensor Prelu(Tensor x, Tensor slope, SourceLocation where = Here());
// alpha * x + beta within [0, 1].
struct HardSigmoidOptions {
  double alpha = 1.0 / 6;
  double beta = 0.5;
};
Tensor HardSigmoid(Tensor x, HardSigmoidOptions options = {}, SourceLocation where = Here());
// x * HardSigmoid(x): Howard et al., arXiv 1905.02244.
Tensor HardSwish(Tensor x, SourceLocation where = Here());
Tensor HardTanh(Tensor x, SourceLocation where = Here());  // x within [-1, 1]
Tensor Relu6(Tensor x, SourceLocation where = Here());     // x within [0, 6]
// log(1 + exp(beta * x)) / beta, beta not 0, without overflow.
Tensor Softplus(Tensor x, double beta = 1, SourceLocation where = Here());
Tensor LogSigmoid(Tensor x, SourceLocation where = Here());  // log(sigmoid(x)), without overflow
Tensor Softsign(Tensor x, SourceLocation where = Here());    // x / (1 + |x|)
Tensor ThresholdedRelu(Tensor x, double alpha = 1, SourceLocation where = Here());  // 0 to alpha
// 0 within [-lambda, lambda], else x moved towards 0 by bias: soft (bias = lambda) and hard (0).
struct ShrinkOptions {
  double lambda = 0.5;
  double bias = 0;
};
Tensor Shrink(Tensor x, ShrinkOptions options = {}, SourceLocation where = Here());

}  // namespace braid
