// Which functions of elements there are: numbered for tables of loops and for launches on a GPU,
// and with the functors that compute them (element_ops.h, activation_ops.h). Needs and makes no
// code.
#pragma once

namespace braid::simd {

// Unary: for floating types and signed integers, for floating types alone, for integers alone, and
// waves: for floating types, with a fast way where all numbers are small.
// clang-format off
#define BRAID_UNARY_OPS(NUMBER, FLOAT, BITS, WAVE)                                            \
  NUMBER(Neg, Neg) FLOAT(Exp, ExpOp) FLOAT(Log, LogOp) FLOAT(Sqrt, SqrtOp)                    \
  FLOAT(Rsqrt, Rsqrt) FLOAT(Tanh, TanhOp) FLOAT(Sigmoid, SigmoidOp) FLOAT(Relu, Relu)         \
  FLOAT(GeluErf, GeluErfOp) FLOAT(GeluTanh, GeluTanhOp) NUMBER(Abs, AbsOp)                    \
  NUMBER(Square, Square) FLOAT(Reciprocal, Reciprocal) NUMBER(Sign, Sign) FLOAT(Scale, Scale) \
  FLOAT(AddScalar, AddScalar) BITS(BitwiseNot, BitwiseNot) WAVE(Sin, SinOp) WAVE(Cos, CosOp)  \
  FLOAT(Tan, TanOp) FLOAT(Asin, AsinOp) FLOAT(Acos, AcosOp) FLOAT(Atan, AtanOp)               \
  FLOAT(Sinh, SinhOp) FLOAT(Cosh, CoshOp) FLOAT(Asinh, AsinhOp) FLOAT(Acosh, AcoshOp)         \
  FLOAT(Atanh, AtanhOp) FLOAT(Erf, ErfOp) FLOAT(Expm1, Expm1Op) FLOAT(Log1p, Log1pOp)         \
  FLOAT(Floor, FloorOp) FLOAT(Ceil, CeilOp) FLOAT(Round, RoundOp) FLOAT(Trunc, TruncOp)

// For floating types and integers, for integers alone, for floating types alone.
#define BRAID_BINARY_OPS(NUMBER, BITS, FLOAT)                                                 \
  NUMBER(Add, Add) NUMBER(Sub, Sub) NUMBER(Mul, Mul) NUMBER(Div, Div) NUMBER(Pow, PowOp)      \
  NUMBER(Maximum, Maximum) NUMBER(Minimum, Minimum) NUMBER(Mod, Mod) NUMBER(Fmod, FmodOp)     \
  BITS(BitwiseAnd, BitwiseAnd) BITS(BitwiseOr, BitwiseOr) BITS(BitwiseXor, BitwiseXor)        \
  BITS(ShiftLeft, ShiftLeft) BITS(ShiftRight, ShiftRight) FLOAT(ReluGrad, ReluGrad)           \
  FLOAT(TanhGrad, TanhGrad) FLOAT(SigmoidGrad, SigmoidGrad)                                   \
  FLOAT(GeluErfGrad, GeluErfGradOp) FLOAT(GeluTanhGrad, GeluTanhGradOp)                       \
  FLOAT(BceWithLogits, BceWithLogits) FLOAT(Bce, Bce)

// For floating types and integers.
#define BRAID_COMPARE_OPS(X)                                                                  \
  X(Equal, Equal) X(NotEqual, NotEqual) X(Less, Less) X(LessEqual, LessEqual)                 \
  X(Greater, Greater) X(GreaterEqual, GreaterEqual)

// Functions of x and up to three numbers, each with its derivative; for floating types.
#define BRAID_ACTIVATIONS(X)                                                                  \
  X(Silu, SiluActivation) X(Mish, MishActivation) X(Elu, EluActivation)                       \
  X(LeakyRelu, LeakyReluActivation) X(HardSigmoid, HardSigmoidActivation)                     \
  X(HardSwish, HardSwishActivation) X(Clip, ClipActivation) X(Softplus, SoftplusActivation)   \
  X(LogSigmoid, LogSigmoidActivation) X(Softsign, SoftsignActivation)                         \
  X(ThresholdedRelu, ThresholdedReluActivation) X(Shrink, ShrinkActivation)                   \
  X(Huber, HuberActivation)
// clang-format on

#define BRAID_ENUMERATOR(name, functor) k##name,
enum class UnaryOp : int {
  BRAID_UNARY_OPS(BRAID_ENUMERATOR, BRAID_ENUMERATOR, BRAID_ENUMERATOR, BRAID_ENUMERATOR) kCount
};
enum class BinaryOp : int {
  BRAID_BINARY_OPS(BRAID_ENUMERATOR, BRAID_ENUMERATOR, BRAID_ENUMERATOR) kCount
};
enum class CompareOp : int { BRAID_COMPARE_OPS(BRAID_ENUMERATOR) kCount };
enum class ActivationOp : int { BRAID_ACTIVATIONS(BRAID_ENUMERATOR) kCount };
#undef BRAID_ENUMERATOR

inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::kCount);
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::kCount);
inline constexpr int kCompareOps = static_cast<int>(CompareOp::kCount);
inline constexpr int kActivationOps = static_cast<int>(ActivationOp::kCount);

// What the definitions of activations call their numbers, activation_ops.h says.
struct ActivationParameters {
  double a, b, c;
};

}  // namespace braid::simd
