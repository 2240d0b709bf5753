// Loops of elementwise operators and of casts between floating types. They may run in place (out
// equal to an input); other overlaps are not allowed.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// clang-format off
#define BRAID_UNARY_OPS(X)                                                                   \
  X(Neg) X(Exp) X(Log) X(Sqrt) X(Rsqrt) X(Tanh) X(Sigmoid) X(Relu) X(GeluErf) X(GeluTanh)    \
  X(Abs) X(Square) X(Reciprocal) X(Sign) X(Scale) X(AddScalar) X(BitwiseNot) X(Sin) X(Cos)
// One function of math.h each.
#define BRAID_MATH_OPS(X)                                                                    \
  X(Tan) X(Asin) X(Acos) X(Atan) X(Sinh) X(Cosh) X(Asinh) X(Acosh) X(Atanh)                  \
  X(Erf) X(Expm1) X(Log1p) X(Floor) X(Ceil) X(Round) X(Trunc)

// For floating types and integers, for integers alone, for floating types alone.
#define BRAID_ARITHMETIC_OPS(X)                                                              \
  X(Add) X(Sub) X(Mul) X(Div) X(Pow) X(Maximum) X(Minimum) X(Mod) X(Fmod)
#define BRAID_BIT_OPS(X) X(BitwiseAnd) X(BitwiseOr) X(BitwiseXor) X(ShiftLeft) X(ShiftRight)
#define BRAID_GRADIENT_OPS(X)                                                                \
  X(ReluGrad) X(TanhGrad) X(SigmoidGrad) X(GeluErfGrad) X(GeluTanhGrad) X(BceWithLogits) X(Bce)
// clang-format on

#define BRAID_COMPARE_OPS(X) X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual)

#define BRAID_ENUMERATOR(name) k##name,
enum class UnaryOp : int {
  BRAID_UNARY_OPS(BRAID_ENUMERATOR) BRAID_MATH_OPS(BRAID_ENUMERATOR) kCount
};
enum class BinaryOp : int {
  BRAID_ARITHMETIC_OPS(BRAID_ENUMERATOR) BRAID_BIT_OPS(BRAID_ENUMERATOR)
      BRAID_GRADIENT_OPS(BRAID_ENUMERATOR) kCount
};
enum class CompareOp : int { BRAID_COMPARE_OPS(BRAID_ENUMERATOR) kCount };
#undef BRAID_ENUMERATOR

// Element types of the tables below.
enum class Type : int { kF32, kF64, kI32, kI64, kU8, kCount };
// Which operand of a binary loop is one element, used for all.
enum class Form : int { kVectorVector, kVectorScalar, kScalarVector, kCount };

inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::kCount);
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::kCount);
inline constexpr int kCompareOps = static_cast<int>(CompareOp::kCount);
inline constexpr int kTypes = static_cast<int>(Type::kCount);
inline constexpr int kForms = static_cast<int>(Form::kCount);

using UnaryFn = void (*)(const void* x, void* out, int64_t n, double parameter);
using BinaryFn = void (*)(const void* a, const void* b, void* out, int64_t n);

struct ElementwiseLoops {
  UnaryFn unary[kUnaryOps][kTypes];  // null where the type has no such loop
  BinaryFn binary[kBinaryOps][kTypes][kForms];
  BinaryFn compare[kCompareOps][kTypes][kForms];  // out: one byte per element
  void (*bf16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*f32_to_bf16)(const float* x, uint16_t* out, int64_t n);
  void (*f16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*f32_to_f16)(const float* x, uint16_t* out, int64_t n);
};

BRAID_DECLARE_LOOPS(ElementwiseLoops)

}  // namespace braid::simd
