// Compiled once per instruction set, with BRAID_ISA naming the namespace and the compiler's flags
// choosing the instructions. Holds nothing but loops over raw pointers: an inline function shared
// with other translation units could leak instructions that the machine lacks into them.
#ifndef BRAID_ISA
#error "BRAID_ISA must name the instruction set"
#endif

#include "runtime/kernels/cpu/simd/activation_loops.h"
#include "runtime/kernels/cpu/simd/elementwise_loops.h"
#include "runtime/kernels/cpu/simd/lane_loops.h"
#include "runtime/kernels/cpu/simd/loops.h"
#include "runtime/kernels/cpu/simd/norm_loops.h"
#include "runtime/kernels/cpu/simd/product_loops.h"
#include "runtime/kernels/cpu/simd/recurrent_loops.h"
#include "runtime/kernels/cpu/simd/row_loops.h"
#include "runtime/kernels/cpu/simd/update_loops.h"
#include "runtime/kernels/cpu/simd/window_loops.h"

namespace braid::simd::BRAID_ISA {

#define BRAID_FLOAT_UNARY(Op) \
  { UnaryLoop<Op, float>, UnaryLoop<Op, double> }
#define BRAID_NUMBER_UNARY(Op) \
  { UnaryLoop<Op, float>, UnaryLoop<Op, double>, UnaryLoop<Op, int32_t>, UnaryLoop<Op, int64_t> }
#define BRAID_BIT_UNARY(Op) \
  { nullptr, nullptr, UnaryLoop<Op, int32_t>, UnaryLoop<Op, int64_t>, UnaryLoop<Op, uint8_t> }
#define BRAID_TRIGONOMETRIC(Op) \
  { TrigonometricLoop<Op>, UnaryLoop<Op, double> }
#define BRAID_MATH(Name) BRAID_FLOAT_UNARY(Name##Op),

#define BRAID_FORMS(Op, T, Out)                                                               \
  {                                                                                           \
    BinaryLoop<Op, T, Out, Form::kVectorVector>, BinaryLoop<Op, T, Out, Form::kVectorScalar>, \
        BinaryLoop<Op, T, Out, Form::kScalarVector>                                           \
  }
#define BRAID_ARITHMETIC(Op)                                                  \
  {                                                                           \
    BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double),           \
        BRAID_FORMS(Op, int32_t, int32_t), BRAID_FORMS(Op, int64_t, int64_t), \
        BRAID_FORMS(Op, uint8_t, uint8_t)                                     \
  }
#define BRAID_BITS(Op)                \
  {{},                                \
   {},                                \
   BRAID_FORMS(Op, int32_t, int32_t), \
   BRAID_FORMS(Op, int64_t, int64_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},
#define BRAID_GRADIENT(Op) \
  { BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double) }
#define BRAID_COMPARE(Op)                                                \
  {BRAID_FORMS(Op, float, uint8_t), BRAID_FORMS(Op, double, uint8_t),    \
   BRAID_FORMS(Op, int32_t, uint8_t), BRAID_FORMS(Op, int64_t, uint8_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},

#define BRAID_ACTIVATION(Name) ActivationLoop<Name##Activation, T>,
#define BRAID_ACTIVATION_GRAD(Name) ActivationGradLoop<Name##Activation, T>,

template <class T>
constexpr RowLoops<T> MakeRowLoops() {
  return {.sum = SumLoop<T>,
          .max = MaxLoop<T>,
          .min = MinLoop<T>,
          .sum_square = SumSquareLoop<T>,
          .sum_abs = SumAbsLoop<T>,
          .product = ProductLoop<T>,
          .sum_rows = SumRowsLoop<Itself, T>,
          .sum_square_rows = SumRowsLoop<Square, T>,
          .sum_abs_rows = SumRowsLoop<AbsOp, T>,
          .add_rows = AddRowsLoop<T>,
          .sum_exp = SumExpLoop<T>,
          .softmax = SoftmaxLoop<T>,
          .softmax_grad = SoftmaxGradLoop<T>,
          .log_softmax = LogSoftmaxLoop<T>,
          .log_softmax_grad = LogSoftmaxGradLoop<T>,
          .scaled_exp = ScaledExpLoop<T>,
          .exp_and_sum = ExpAndSumLoop<T>,
          .attention_weights_grad = AttentionWeightsGradLoop<T>,
          .small_product = SmallProductLoop<T>,
          .transpose = TransposeLoop<T>,
          .scale_add = ScaleAddLoop<T>,
          .scale_where = ScaleWhereLoop<T>,
          .dot = DotLoop<T>,
          .add_scaled = AddScaledLoop<T>,
          .layer_norm = LayerNormLoop<T>,
          .layer_norm_grad = LayerNormGradLoop<T>,
          .rms_norm = RmsNormLoop<T>,
          .rms_norm_grad = RmsNormGradLoop<T>,
          .rotate_pairs = RotatePairsLoop<T>,
          .rotate_halves = RotateHalvesLoop<T>,
          .lstm_cell = LstmCellLoop<T>,
          .lstm_cell_grad = LstmCellGradLoop<T>,
          .gru_cell = GruCellLoop<T>,
          .gru_cell_grad = GruCellGradLoop<T>,
          .sgd = SgdLoop<T>,
          .momentum = MomentumLoop<T>,
          .adam = AdamLoop<T>,
          .rmsprop = RmspropLoop<T>,
          .adagrad = AdagradLoop<T>,
          .lars = LarsLoop<T>,
          .lamb = LambLoop<T>,
          .lamb_square = LambSquareLoop<T>,
          .activation = {BRAID_ACTIVATIONS(BRAID_ACTIVATION)},
          .activation_grad = {BRAID_ACTIVATIONS(BRAID_ACTIVATION_GRAD)},
          .dropout = DropoutLoop<T>,
          .add_strided = AddStridedLoop<T>,
          .max_strided = MaxStridedLoop<T>,
          .arg_max_strided = ArgMaxStridedLoop<T>,
          .scatter_strided = ScatterStridedLoop<T>,
          .max_2x2 = Max2x2Loop<T>,
          .max_2x2_grad = Max2x2GradLoop<T>,
          .centered_square_sum = CenteredSquareSumLoop<T>,
          .centered_scale = CenteredScaleLoop<T>,
          .centered_dot = CenteredDotLoop<T>,
          .centered_grad = CenteredGradLoop<T>,
          .add_centered_squares = AddCenteredSquaresLoop<T>,
          .centered_scale_each = CenteredScaleEachLoop<T>,
          .add_centered_dots = AddCenteredDotsLoop<T>,
          .centered_grad_each = CenteredGradEachLoop<T>,
          .lane_sum = LaneSumLoop<T>,
          .lane_square_sum = LaneSquareSumLoop<T>,
          .lane_scale = LaneScaleLoop<T>,
          .lane_dot = LaneDotLoop<T>,
          .lane_grad = LaneGradLoop<T>};
}

#define BRAID_TEXT_OF(name) #name
#define BRAID_TEXT(name) BRAID_TEXT_OF(name)

extern const Loops kLoops;
constexpr Loops kLoops = {
    // In the order of the enumerations.
    .unary = {BRAID_NUMBER_UNARY(Neg),       BRAID_FLOAT_UNARY(ExpOp),
              BRAID_FLOAT_UNARY(LogOp),      BRAID_FLOAT_UNARY(SqrtOp),
              BRAID_FLOAT_UNARY(Rsqrt),      BRAID_FLOAT_UNARY(TanhOp),
              BRAID_FLOAT_UNARY(SigmoidOp),  BRAID_FLOAT_UNARY(Relu),
              BRAID_FLOAT_UNARY(GeluErfOp),  BRAID_FLOAT_UNARY(GeluTanhOp),
              BRAID_NUMBER_UNARY(AbsOp),     BRAID_NUMBER_UNARY(Square),
              BRAID_FLOAT_UNARY(Reciprocal), BRAID_NUMBER_UNARY(Sign),
              BRAID_FLOAT_UNARY(Scale),      BRAID_FLOAT_UNARY(Shift),
              BRAID_BIT_UNARY(BitwiseNot),   BRAID_TRIGONOMETRIC(SinOp),
              BRAID_TRIGONOMETRIC(CosOp),    BRAID_MATH_OPS(BRAID_MATH)},
    .binary = {BRAID_ARITHMETIC(Add), BRAID_ARITHMETIC(Sub), BRAID_ARITHMETIC(Mul),
               BRAID_ARITHMETIC(Div), BRAID_ARITHMETIC(PowOp), BRAID_ARITHMETIC(Maximum),
               BRAID_ARITHMETIC(Minimum), BRAID_ARITHMETIC(Mod), BRAID_ARITHMETIC(FmodOp),
               BRAID_BIT_OPS(BRAID_BITS) BRAID_GRADIENT(ReluGrad), BRAID_GRADIENT(TanhGrad),
               BRAID_GRADIENT(SigmoidGrad), BRAID_GRADIENT(GeluErfGradOp),
               BRAID_GRADIENT(GeluTanhGradOp), BRAID_GRADIENT(BceWithLogits), BRAID_GRADIENT(Bce)},
    .compare = {BRAID_COMPARE_OPS(BRAID_COMPARE)},
    .f32 = MakeRowLoops<float>(),
    .f64 = MakeRowLoops<double>(),
    .bf16_to_f32 = BFloat16ToFloat,
    .f32_to_bf16 = FloatToBFloat16,
    .f16_to_f32 = Float16ToFloat,
    .f32_to_f16 = FloatToFloat16,
    .name = BRAID_TEXT(BRAID_ISA)};

}  // namespace braid::simd::BRAID_ISA
