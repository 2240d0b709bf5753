// Launches of what works element by element, with broadcasting.
#pragma once

#include "graph/dtype.h"
#include "runtime/coded_elements.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid::cuda {

inline constexpr int kPointwiseInputs = 3;

struct PointwiseLaunch {
  int32_t op = 0;  // simd::UnaryOp and so on, as the function of the table says
  // What is computed with: f32 also stands for what is stored as bf16 or f16, u8 for bool.
  DType compute = DType::kF32;
  DType out_type = DType::kF32;
  DType types[kPointwiseInputs] = {};
  void* output = nullptr;
  const void* inputs[kPointwiseInputs] = {};
  Walk walk;  // of the output (operand 0) and the inputs
  simd::ActivationParameters parameters = {};
  int64_t low = 0, high = 0;  // of clip, for integers
  Encoding encoding = {};     // of casts
  // The launch functions' own: elements of a thread at a time, and how often that is.
  int32_t group = 1;
  int64_t groups = 0;
};

// Of bool: and, or, xor; what is not.
enum class LogicOp : int { kAnd, kOr, kXor, kNot };
// Of floating numbers: NaN; infinite, where parameters.a and .b are the infinities that are meant.
enum class TestOp : int { kIsNan, kIsInf };

struct BytesLaunch {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
  const uint8_t* applies = nullptr;  // on the device; null: yes
};

using PointwiseFn = Error (*)(const Queue&, const PointwiseLaunch&);

struct PointwiseTable {
  PointwiseFn unary;            // UnaryOp; parameters.a is its number
  PointwiseFn activation;       // ActivationOp
  PointwiseFn activation_grad;  // ActivationOp of inputs x and dy
  PointwiseFn integer_clip;     // low, high
  PointwiseFn test;             // TestOp, makes bool
  PointwiseFn binary;           // BinaryOp
  PointwiseFn compare;          // CompareOp, makes bool
  PointwiseFn logic;            // LogicOp; kNot takes one input
  PointwiseFn where;            // condition, a, b; compute is u8, i32, i64 or f16: as large as they
  PointwiseFn cast;             // any types
  Error (*copy)(const Queue&, const BytesLaunch&);
};
PointwiseTable MakePointwiseTable();

// The part of the table that pointwise_unary.cu fills in.
void AddUnaryLaunches(PointwiseTable& table);

}  // namespace braid::cuda
