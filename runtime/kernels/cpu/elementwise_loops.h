// Loops of elementwise operators and of casts between floating types. They may run in place (out
// equal to an input); other overlaps are not allowed.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid::simd {

// Element types of the tables below.
enum class Type : int { kF32, kF64, kI32, kI64, kU8, kCount };
// Which operand of a binary loop is one element, used for all.
enum class Form : int { kVectorVector, kVectorScalar, kScalarVector, kCount };

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
