// The inner loops of the CPU kernels: one table of function pointers per instruction set, all
// compiled from the same sources (loops_for_isa.cc). A kernel picks its loops when it is created.
// Elementwise loops may run in place (out equal to an input); other overlaps are not allowed.
#pragma once

#include <cstdint>

namespace braid::simd {

// clang-format off
#define BRAID_UNARY_OPS(X)                                                                   \
  X(Neg) X(Exp) X(Log) X(Sqrt) X(Rsqrt) X(Tanh) X(Sigmoid) X(Relu) X(GeluErf) X(GeluTanh)    \
  X(Abs) X(Square) X(Reciprocal) X(Sign) X(Scale) X(Shift)
// clang-format on

// The first group also for integers.
#define BRAID_ARITHMETIC_OPS(X) X(Add) X(Sub) X(Mul) X(Div) X(Pow) X(Maximum) X(Minimum)
#define BRAID_GRADIENT_OPS(X) X(ReluGrad) X(TanhGrad) X(SigmoidGrad) X(GeluErfGrad) X(GeluTanhGrad)

#define BRAID_COMPARE_OPS(X) X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual)

#define BRAID_ENUMERATOR(name) k##name,
enum class UnaryOp : int { BRAID_UNARY_OPS(BRAID_ENUMERATOR) kCount };
enum class BinaryOp : int {
  BRAID_ARITHMETIC_OPS(BRAID_ENUMERATOR) BRAID_GRADIENT_OPS(BRAID_ENUMERATOR) kCount
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

struct SgdParameters {
  double lr, weight_decay, momentum;
  bool nesterov;
};

struct AdamParameters {
  double lr, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  bool decoupled;
};

// Loops over one row of n elements unless they say otherwise; n may be 0. Sums have an order that
// depends on n only.
template <class T>
struct RowLoops {
  T (*sum)(const T* x, int64_t n);
  T (*max)(const T* x, int64_t n);  // -inf if empty; NaN if any is
  T (*min)(const T* x, int64_t n);
  // out[j] = sum over i < rows of x[i * stride + j], j < n.
  void (*sum_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  T (*sum_exp)(const T* x, T max, int64_t n);  // of exp(x - max)
  void (*softmax)(const T* x, T* y, int64_t n, T scale);
  void (*softmax_grad)(const T* y, const T* dy, T* dx, int64_t n, T scale);
  void (*log_softmax)(const T* x, T* y, int64_t n);
  void (*log_softmax_grad)(const T* y, const T* dy, T* dx, int64_t n);
  void (*scaled_exp)(const T* x, T* y, int64_t n, T max, T factor);  // factor * exp(x - max)
  T (*dot)(const T* a, const T* b, int64_t n);
  void (*add_scaled)(const T* x, T factor, T* y, int64_t n);  // y += factor * x
  void (*layer_norm)(const T* x, const T* gamma, const T* beta, T* y, int64_t n, T epsilon, T* mean,
                     T* rstd);
  // Writes dx; adds this row's terms to dgamma and dbeta.
  void (*layer_norm_grad)(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, T* dgamma,
                          T* dbeta, int64_t n);
  void (*sgd)(T* var, const T* grad, int64_t n, const SgdParameters& parameters);
  void (*momentum)(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters);
  void (*adam)(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters);
  // out = x * scale where the uniform number made of the word is >= rate, else 0.
  void (*dropout)(const T* x, const uint32_t* words, T* out, int64_t n, float rate, T scale);
};

struct Loops {
  UnaryFn unary[kUnaryOps][kTypes];  // null where the type has no such loop
  BinaryFn binary[kBinaryOps][kTypes][kForms];
  BinaryFn compare[kCompareOps][kTypes][kForms];  // out: one byte per element
  RowLoops<float> f32;
  RowLoops<double> f64;
  void (*bf16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*f32_to_bf16)(const float* x, uint16_t* out, int64_t n);
  void (*f16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*f32_to_f16)(const float* x, uint16_t* out, int64_t n);
  const char* name;  // of the instruction set
};

template <class T>
const RowLoops<T>& Rows(const Loops& loops) {
  if constexpr (sizeof(T) == 4) {
    return loops.f32;
  } else {
    return loops.f64;
  }
}

// The table of the best instruction set that this machine has.
const Loops& BestLoops();

// Every table that can run here, the best one last: for tests.
struct LoopsList {
  const Loops* tables[3];
  int size;
};
LoopsList RunnableLoops();

}  // namespace braid::simd
