// Which function of elements an operator is, for kernels of every kind of device. The operators
// whose function depends on their attributes (gelu, gelu_grad) or takes a number (scale,
// add_scalar) are not among them.
#pragma once

#include <cstdint>
#include <limits>

#include "graph/attrs.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid {

struct NamedUnary {
  const char* name;
  simd::UnaryOp op;
};
inline constexpr NamedUnary kNamedUnaries[] = {{"neg", simd::UnaryOp::kNeg},
                                               {"exp", simd::UnaryOp::kExp},
                                               {"log", simd::UnaryOp::kLog},
                                               {"sqrt", simd::UnaryOp::kSqrt},
                                               {"rsqrt", simd::UnaryOp::kRsqrt},
                                               {"tanh", simd::UnaryOp::kTanh},
                                               {"sigmoid", simd::UnaryOp::kSigmoid},
                                               {"relu", simd::UnaryOp::kRelu},
                                               {"abs", simd::UnaryOp::kAbs},
                                               {"square", simd::UnaryOp::kSquare},
                                               {"reciprocal", simd::UnaryOp::kReciprocal},
                                               {"sign", simd::UnaryOp::kSign},
                                               {"bitwise_not", simd::UnaryOp::kBitwiseNot},
                                               {"sin", simd::UnaryOp::kSin},
                                               {"cos", simd::UnaryOp::kCos},
                                               {"tan", simd::UnaryOp::kTan},
                                               {"asin", simd::UnaryOp::kAsin},
                                               {"acos", simd::UnaryOp::kAcos},
                                               {"atan", simd::UnaryOp::kAtan},
                                               {"sinh", simd::UnaryOp::kSinh},
                                               {"cosh", simd::UnaryOp::kCosh},
                                               {"asinh", simd::UnaryOp::kAsinh},
                                               {"acosh", simd::UnaryOp::kAcosh},
                                               {"atanh", simd::UnaryOp::kAtanh},
                                               {"erf", simd::UnaryOp::kErf},
                                               {"expm1", simd::UnaryOp::kExpm1},
                                               {"log1p", simd::UnaryOp::kLog1p},
                                               {"floor", simd::UnaryOp::kFloor},
                                               {"ceil", simd::UnaryOp::kCeil},
                                               {"round", simd::UnaryOp::kRound},
                                               {"trunc", simd::UnaryOp::kTrunc}};

struct NamedBinary {
  const char* name;
  simd::BinaryOp op;
};
inline constexpr NamedBinary kNamedBinaries[] = {
    {"add", simd::BinaryOp::kAdd},
    {"sub", simd::BinaryOp::kSub},
    {"mul", simd::BinaryOp::kMul},
    {"div", simd::BinaryOp::kDiv},
    {"pow", simd::BinaryOp::kPow},
    {"maximum", simd::BinaryOp::kMaximum},
    {"minimum", simd::BinaryOp::kMinimum},
    {"mod", simd::BinaryOp::kMod},
    {"fmod", simd::BinaryOp::kFmod},
    {"bitwise_and", simd::BinaryOp::kBitwiseAnd},
    {"bitwise_or", simd::BinaryOp::kBitwiseOr},
    {"bitwise_xor", simd::BinaryOp::kBitwiseXor},
    {"shift_left", simd::BinaryOp::kShiftLeft},
    {"shift_right", simd::BinaryOp::kShiftRight},
    {"bce_with_logits", simd::BinaryOp::kBceWithLogits},
    {"bce", simd::BinaryOp::kBce},
    {"relu_grad", simd::BinaryOp::kReluGrad},
    {"tanh_grad", simd::BinaryOp::kTanhGrad},
    {"sigmoid_grad", simd::BinaryOp::kSigmoidGrad}};

struct NamedCompare {
  const char* name;
  simd::CompareOp op;
};
inline constexpr NamedCompare kNamedCompares[] = {
    {"equal", simd::CompareOp::kEqual},     {"not_equal", simd::CompareOp::kNotEqual},
    {"less", simd::CompareOp::kLess},       {"less_equal", simd::CompareOp::kLessEqual},
    {"greater", simd::CompareOp::kGreater}, {"greater_equal", simd::CompareOp::kGreaterEqual}};

struct NamedActivation {
  const char* name;
  simd::ActivationOp op;
  const char* attrs[3];  // which become a, b and c; null: none
};
inline constexpr NamedActivation kNamedActivations[] = {
    {"silu", simd::ActivationOp::kSilu, {}},
    {"mish", simd::ActivationOp::kMish, {}},
    {"elu", simd::ActivationOp::kElu, {"alpha", "gamma", "rate"}},
    {"leaky_relu", simd::ActivationOp::kLeakyRelu, {"alpha"}},
    {"hard_sigmoid", simd::ActivationOp::kHardSigmoid, {"alpha", "beta"}},
    {"hard_swish", simd::ActivationOp::kHardSwish, {}},
    {"clip", simd::ActivationOp::kClip, {"low", "high"}},
    {"softplus", simd::ActivationOp::kSoftplus, {"beta"}},
    {"log_sigmoid", simd::ActivationOp::kLogSigmoid, {}},
    {"softsign", simd::ActivationOp::kSoftsign, {}},
    {"thresholded_relu", simd::ActivationOp::kThresholdedRelu, {"alpha"}},
    {"shrink", simd::ActivationOp::kShrink, {"lambda", "bias"}},
    {"huber", simd::ActivationOp::kHuber, {"delta"}},
};

inline simd::ActivationParameters ParametersOf(const NamedActivation& activation,
                                               const Attrs& attrs) {
  double values[3] = {};
  for (int i = 0; i < 3 && activation.attrs[i] != nullptr; ++i) {
    values[i] = attrs.Double(activation.attrs[i]);
  }
  return {values[0], values[1], values[2]};
}

// The nearest T to a bound, which may be infinite.
template <class T>
T NearestTo(double value) {
  // The upper end of int64_t is not a double: what reaches it is cut off before the conversion.
  if (!(value > static_cast<double>(std::numeric_limits<T>::min()))) {
    return std::numeric_limits<T>::min();
  }
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

}  // namespace braid
