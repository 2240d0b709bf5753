// Compiled once per instruction set, with BRAID_ISA naming the namespace and the compiler's flags
// choosing the instructions. Holds nothing but loops over raw pointers: an inline function shared
// with other translation units could leak instructions that the machine lacks into them.
#ifndef BRAID_ISA
#error "BRAID_ISA must name the instruction set"
#endif

#include "runtime/kernels/cpu/simd/elementwise_loops.h"
#include "runtime/kernels/cpu/simd/loops.h"
#include "runtime/kernels/cpu/simd/row_loops.h"

namespace braid::simd::BRAID_ISA {

#define BRAID_FLOAT_UNARY(Op) \
  { UnaryLoop<Op, float>, UnaryLoop<Op, double> }

#define BRAID_FORMS(Op, T, Out)                                                               \
  {                                                                                           \
    BinaryLoop<Op, T, Out, Form::kVectorVector>, BinaryLoop<Op, T, Out, Form::kVectorScalar>, \
        BinaryLoop<Op, T, Out, Form::kScalarVector>                                           \
  }
#define BRAID_ARITHMETIC(Op)                                                 \
  {                                                                          \
    BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double),          \
        BRAID_FORMS(Op, int32_t, int32_t), BRAID_FORMS(Op, int64_t, int64_t) \
  }
#define BRAID_GRADIENT(Op) \
  { BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double) }
#define BRAID_COMPARE(Op)                                                \
  {BRAID_FORMS(Op, float, uint8_t), BRAID_FORMS(Op, double, uint8_t),    \
   BRAID_FORMS(Op, int32_t, uint8_t), BRAID_FORMS(Op, int64_t, uint8_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},

template <class T>
constexpr RowLoops<T> MakeRowLoops() {
  return {.sum = SumLoop<T>,
          .max = MaxLoop<T>,
          .min = MinLoop<T>,
          .sum_rows = SumRowsLoop<T>,
          .sum_exp = SumExpLoop<T>,
          .softmax = SoftmaxLoop<T>,
          .softmax_grad = SoftmaxGradLoop<T>,
          .log_softmax = LogSoftmaxLoop<T>,
          .log_softmax_grad = LogSoftmaxGradLoop<T>,
          .scaled_exp = ScaledExpLoop<T>,
          .dot = DotLoop<T>,
          .add_scaled = AddScaledLoop<T>,
          .layer_norm = LayerNormLoop<T>,
          .layer_norm_grad = LayerNormGradLoop<T>,
          .sgd = SgdLoop<T>,
          .momentum = MomentumLoop<T>,
          .adam = AdamLoop<T>,
          .dropout = DropoutLoop<T>};
}

#define BRAID_TEXT_OF(name) #name
#define BRAID_TEXT(name) BRAID_TEXT_OF(name)

extern const Loops kLoops;
constexpr Loops kLoops = {
    // In the order of the enumerations.
    .unary = {BRAID_FLOAT_UNARY(Neg), BRAID_FLOAT_UNARY(ExpOp), BRAID_FLOAT_UNARY(LogOp),
              BRAID_FLOAT_UNARY(SqrtOp), BRAID_FLOAT_UNARY(Rsqrt), BRAID_FLOAT_UNARY(TanhOp),
              BRAID_FLOAT_UNARY(SigmoidOp), BRAID_FLOAT_UNARY(Relu), BRAID_FLOAT_UNARY(GeluErfOp),
              BRAID_FLOAT_UNARY(GeluTanhOp), BRAID_FLOAT_UNARY(AbsOp), BRAID_FLOAT_UNARY(Square),
              BRAID_FLOAT_UNARY(Reciprocal), BRAID_FLOAT_UNARY(Sign), BRAID_FLOAT_UNARY(Scale),
              BRAID_FLOAT_UNARY(Shift)},
    .binary = {BRAID_ARITHMETIC(Add), BRAID_ARITHMETIC(Sub), BRAID_ARITHMETIC(Mul),
               BRAID_ARITHMETIC(Div), BRAID_ARITHMETIC(PowOp), BRAID_ARITHMETIC(Maximum),
               BRAID_ARITHMETIC(Minimum), BRAID_GRADIENT(ReluGrad), BRAID_GRADIENT(TanhGrad),
               BRAID_GRADIENT(SigmoidGrad), BRAID_GRADIENT(GeluErfGradOp),
               BRAID_GRADIENT(GeluTanhGradOp)},
    .compare = {BRAID_COMPARE_OPS(BRAID_COMPARE)},
    .f32 = MakeRowLoops<float>(),
    .f64 = MakeRowLoops<double>(),
    .bf16_to_f32 = BFloat16ToFloat,
    .f32_to_bf16 = FloatToBFloat16,
    .f16_to_f32 = Float16ToFloat,
    .f32_to_f16 = FloatToFloat16,
    .name = BRAID_TEXT(BRAID_ISA)};

}  // namespace braid::simd::BRAID_ISA
