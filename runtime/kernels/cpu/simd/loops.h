// The inner loops of the CPU kernels: one table of function pointers per instruction set, all
// compiled from the same sources (loops_for_isa.cc). A kernel picks its loops when it is created.
// Elementwise loops may run in place (out equal to an input); other overlaps are not allowed.
#pragma once

#include <cstdint>

namespace braid::simd {

// clang-format off
#define BRAID_UNARY_OPS(X)                                                                   \
  X(Neg) X(Exp) X(Log) X(Sqrt) X(Rsqrt) X(Tanh) X(Sigmoid) X(Relu) X(GeluErf) X(GeluTanh)    \
  X(Abs) X(Square) X(Reciprocal) X(Sign) X(Scale) X(Shift) X(BitwiseNot) X(Sin) X(Cos)
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

// Functions of x and up to three numbers, each with its gradient: activation_loops.h says what.
#define BRAID_ACTIVATIONS(X)                                                                 \
  X(Silu) X(Mish) X(Elu) X(LeakyRelu) X(HardSigmoid) X(HardSwish) X(Clip) X(Softplus)        \
  X(LogSigmoid) X(Softsign) X(ThresholdedRelu) X(Shrink) X(Huber)
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
enum class ActivationOp : int { BRAID_ACTIVATIONS(BRAID_ENUMERATOR) kCount };
enum class CompareOp : int { BRAID_COMPARE_OPS(BRAID_ENUMERATOR) kCount };
#undef BRAID_ENUMERATOR

// Element types of the tables below.
enum class Type : int { kF32, kF64, kI32, kI64, kU8, kCount };
// Which operand of a binary loop is one element, used for all.
enum class Form : int { kVectorVector, kVectorScalar, kScalarVector, kCount };

inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::kCount);
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::kCount);
inline constexpr int kActivationOps = static_cast<int>(ActivationOp::kCount);
inline constexpr int kCompareOps = static_cast<int>(CompareOp::kCount);
inline constexpr int kTypes = static_cast<int>(Type::kCount);
inline constexpr int kForms = static_cast<int>(Form::kCount);

using UnaryFn = void (*)(const void* x, void* out, int64_t n, double parameter);
using BinaryFn = void (*)(const void* a, const void* b, void* out, int64_t n);

struct ActivationParameters {
  double a, b, c;
};
// The forward loop ignores dy, which is null.
template <class T>
using ActivationFn = void (*)(const T* x, const T* dy, T* out, int64_t n,
                              const ActivationParameters& parameters);

struct SgdParameters {
  double lr, weight_decay, momentum;
  bool nesterov;
};

struct AdamParameters {
  double lr, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^t
  bool decoupled;
};

struct RmspropParameters {
  double lr, alpha, epsilon, momentum, weight_decay;
};
template <class T>
struct RmspropOperands {
  T* var;
  const T* grad;
  T* square;
  T* mean;      // null: not centered
  T* velocity;  // null: no momentum
};

struct AdagradParameters {
  double lr, initial, epsilon, weight_decay;
};

// dx = of_dy * dy + of_x * (x - mean) + addend; a number per element with `Each`.
template <class T>
struct CenteredGrad {
  T of_dy, of_x, addend;
};
template <class T>
struct CenteredGradEach {
  const T *of_dy, *of_x, *addend;
};

// Numbers of kLanesOfBlock channels whose pixels lie side by side, and sums of them.
inline constexpr int kLanesOfBlock = 16;
// (x - mean) * factor + addend; with `rectifies` 0 where that is less.
template <class T>
struct LaneScale {
  const T *mean, *factor, *addend;
  bool rectifies = false;
};
template <class T>
struct LaneSums {
  T sum[kLanesOfBlock], dot[kLanesOfBlock];
};

// One query's row of the gradient of attention.
struct AttentionRow {
  double scale, lse, delta, factor;
};

// c [rows, n] = a b, or c += a b: element (row, k) of a is a[row * a_row + k * a_step], so that a
// may lie transposed; the rows of b and c are dense, b_row and c_row apart.
template <class T>
struct SmallProduct {
  int64_t rows, n, k;
  const T* a;
  int64_t a_row, a_step;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  bool adds;
};

// What the gradients of one row of a recurrent cell are computed from.
template <class T>
struct LstmRow {
  const T *x, *r, *last_c, *c, *dh, *dc;
};
template <class T>
struct GruRow {
  const T *x, *r, *last_h, *dh;
};

// Loops over one row of n elements unless they say otherwise; n may be 0. Sums have an order that
// depends on n only.
// Rows of which sums over rows add up one by one.
inline constexpr int64_t kSumRowBlock = 128;

template <class T>
struct RowLoops {
  T (*sum)(const T* x, int64_t n);
  T (*max)(const T* x, int64_t n);  // -inf if empty; NaN if any is
  T (*min)(const T* x, int64_t n);
  T (*sum_square)(const T* x, int64_t n);
  T (*sum_abs)(const T* x, int64_t n);
  T (*product)(const T* x, int64_t n);
  // out[j] = sum over i < rows of x[i * stride + j], j < n; of its square; of its magnitude.
  void (*sum_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  void (*sum_square_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  void (*sum_abs_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  // out[j] += x[i * stride + j], i < rows, j < n, in that order. sum_rows is this over blocks of
  // kSumRowBlock rows, whose results are joined in double.
  void (*add_rows)(const T* x, int64_t rows, int64_t stride, T* out, int64_t n);
  T (*sum_exp)(const T* x, T max, int64_t n);  // of exp(x - max)
  void (*softmax)(const T* x, T* y, int64_t n, T scale);
  void (*softmax_grad)(const T* y, const T* dy, T* dx, int64_t n, T scale);
  void (*log_softmax)(const T* x, T* y, int64_t n);
  void (*log_softmax_grad)(const T* y, const T* dy, T* dx, int64_t n);
  void (*scaled_exp)(const T* x, T* y, int64_t n, T max, T factor);  // factor * exp(x - max)
  T (*exp_and_sum)(const T* x, T* y, int64_t n, T scale, T max);     // y = exp(scale * x - max)
  // Scores to weights p = exp(scale * score - lse), their gradient to ds = factor * p * (dp -
  // delta), both in place.
  void (*attention_weights_grad)(T* scores, T* gradient, int64_t n, const AttentionRow& row);
  // For products that stay in cache: nothing is packed. Each element's terms are added in the order
  // of k.
  void (*small_product)(const SmallProduct<T>& product);
  // y[column * y_row + row] = x[row * x_row + column].
  void (*transpose)(const T* x, int64_t x_row, int64_t rows, int64_t columns, T* y, int64_t y_row);
  void (*scale_add)(const T* a, T scale, T* x, int64_t n);  // x = scale * x + a
  // x = scale * x where keep is not 0, else -inf.
  void (*scale_where)(const uint8_t* keep, T scale, T* x, int64_t n);
  T (*dot)(const T* a, const T* b, int64_t n);
  void (*add_scaled)(const T* x, T factor, T* y, int64_t n);  // y += factor * x
  void (*layer_norm)(const T* x, const T* gamma, const T* beta, T* y, int64_t n, T epsilon, T* mean,
                     T* rstd);
  // Writes dx; adds this row's terms to dgamma and dbeta.
  void (*layer_norm_grad)(const T* x, const T* gamma, T mean, T rstd, const T* dy, T* dx, T* dgamma,
                          T* dbeta, int64_t n);
  // y = x * rstd * gamma; returns rstd = 1 / sqrt(mean(x^2) + epsilon).
  T (*rms_norm)(const T* x, const T* gamma, T* y, int64_t n, T epsilon);
  // Writes dx; adds this row's terms to dgamma.
  void (*rms_norm_grad)(const T* x, const T* gamma, T rstd, const T* dy, T* dx, T* dgamma,
                        int64_t n);
  // Turns each of `pairs` pairs by its angle: elements 2 i and 2 i + 1, or i and pairs + i.
  void (*rotate_pairs)(const T* x, const T* cos, const T* sin, T* y, int64_t pairs);
  void (*rotate_halves)(const T* x, const T* cos, const T* sin, T* y, int64_t pairs);
  // One row of a recurrent cell of n units: x and r are the gates' terms from the input and from
  // the last state, [4, n] in the order i, f, g, o, and [3, n] in the order r, z, n.
  void (*lstm_cell)(const T* x, const T* r, const T* last_c, T* h, T* c, int64_t n);
  // dgates [4, n] is that of x and of r.
  void (*lstm_cell_grad)(const LstmRow<T>& row, T* dgates, T* dlast_c, int64_t n);
  void (*gru_cell)(const T* x, const T* r, const T* last_h, T* h, int64_t n);
  void (*gru_cell_grad)(const GruRow<T>& row, T* dx, T* dr, T* dlast_h, int64_t n);
  void (*sgd)(T* var, const T* grad, int64_t n, const SgdParameters& parameters);
  void (*momentum)(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters);
  void (*adam)(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters);
  void (*rmsprop)(const RmspropOperands<T>& operands, int64_t n,
                  const RmspropParameters& parameters);
  void (*adagrad)(T* var, const T* grad, T* sum, int64_t n, const AdagradParameters& parameters);
  // The learning rates of lars and lamb have their trust ratios in them.
  void (*lars)(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters);
  void (*lamb)(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters);
  // The sum of squares of the directions that lamb is about to go.
  T(*lamb_square)
  (const T* var, const T* grad, const T* m, const T* v, int64_t n,
   const AdamParameters& parameters);
  // In the order of ActivationOp.
  ActivationFn<T> activation[kActivationOps], activation_grad[kActivationOps];
  // out = x * scale where the uniform number made of the word is >= rate, else 0.
  void (*dropout)(const T* x, const uint32_t* words, T* out, int64_t n, float rate, T scale);
  // Windows: y[i] joined with x[i * stride]. arg_max: of the largest so far and its index, -1 at
  // first; x[j] has index first + j. scatter: y[i * stride] += x[i].
  void (*add_strided)(const T* x, int64_t stride, T* y, int64_t n);
  void (*max_strided)(const T* x, int64_t stride, T* y, int64_t n);
  void (*arg_max_strided)(const T* x, int64_t stride, int32_t first, T* best, int32_t* index,
                          int64_t n);
  void (*scatter_strided)(const T* x, T* y, int64_t stride, int64_t n);
  // The largest of each window of 2 x 2 elements, side by side: `rows` rows of width / 2 windows,
  // from 2 * rows rows of x, contiguous; the width is even. The scratch has rows * width elements,
  // for the gradient twice as many.
  void (*max_2x2)(const T* x, int64_t rows, int64_t width, T* scratch, T* y);
  void (*max_2x2_grad)(const T* x, const T* dy, int64_t rows, int64_t width, T* scratch, T* dx);
  // Normalization by statistics from elsewhere, see norm_loops.h.
  T (*centered_square_sum)(const T* x, T mean, int64_t n);  // of (x - mean)^2
  // y = (x - mean) * factor + addend
  void (*centered_scale)(const T* x, T mean, T factor, T addend, T* y, int64_t n);
  // Of dy, and of dy * (x - mean).
  void (*centered_dot)(const T* x, T mean, const T* dy, int64_t n, T* sum, T* dot);
  void (*centered_grad)(const T* x, T mean, const T* dy, const CenteredGrad<T>& c, T* dx,
                        int64_t n);
  // The same with numbers per element; sums are added to what is there, element by element.
  void (*add_centered_squares)(const T* x, const T* mean, T* squares, int64_t n);
  void (*centered_scale_each)(const T* x, const T* mean, const T* factor, const T* addend, T* y,
                              int64_t n);
  void (*add_centered_dots)(const T* x, const T* mean, const T* dy, T* sum, T* dot, int64_t n);
  void (*centered_grad_each)(const T* x, const T* mean, const T* dy, const CenteredGradEach<T>& c,
                             T* dx, int64_t n);
  // The same for `pixels` of kLanesOfBlock channels, which have a number each; see lane_loops.h.
  void (*lane_sum)(const T* x, int64_t pixels, T* sum);
  void (*lane_square_sum)(const T* x, const T* mean, int64_t pixels, T* sum);
  // `more`, unless it is null, is added before the rectifier.
  void (*lane_scale)(const T* x, const LaneScale<T>& c, const T* more, T* y, int64_t pixels);
  // Of dy where the rectifier let x through.
  void (*lane_dot)(const T* x, const LaneScale<T>& c, const T* dy, int64_t pixels,
                   LaneSums<T>* sums);
  void (*lane_grad)(const T* x, const LaneScale<T>& c, const T* dy, const CenteredGradEach<T>& g,
                    T* dx, int64_t pixels);
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
