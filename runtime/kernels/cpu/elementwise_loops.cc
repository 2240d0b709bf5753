// Unary, binary and comparison loops over raw pointers, and casts.
#include "runtime/kernels/cpu/elementwise_loops.h"

#include "runtime/base/half.h"
#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

#define BRAID_MATH_STRUCT(Name) \
  struct Name##Op {             \
    template <class T>          \
    BRAID_INLINE T F(T x, T) {  \
      return Name(x);           \
    }                           \
  };
BRAID_MATH_OPS(BRAID_MATH_STRUCT)
#undef BRAID_MATH_STRUCT

template <class Op, class T>
void UnaryLoop(const void* x_data, void* out_data, int64_t n, double parameter) {
  const T* x = static_cast<const T*>(x_data);
  T* out = static_cast<T*>(out_data);
  const T p = static_cast<T>(parameter);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Op::F(x[i], p);
}

// Op::Near, which vectorises, for blocks of small numbers, Op::F for others.
template <class Op>
void TrigonometricLoop(const void* x_data, void* out_data, int64_t n, double /*parameter*/) {
  constexpr int64_t kBlock = 512;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const float* x = static_cast<const float*>(x_data) + begin;
    float* out = static_cast<float*>(out_data) + begin;
    const int size = static_cast<int>(n - begin < kBlock ? n - begin : kBlock);
    int large = 0;
    for (int i = 0; i < size; ++i) large |= Abs(x[i]) <= kMostReduced ? 0 : 1;
    if (large == 0) {
      BRAID_INDEPENDENT
      for (int i = 0; i < size; ++i) out[i] = Op::Near(x[i]);
    } else {
      for (int i = 0; i < size; ++i) out[i] = Op::F(x[i], 0.0f);
    }
  }
}

template <class Op, class T, class Out, Form form>
void BinaryLoop(const void* a_data, const void* b_data, void* out_data, int64_t n) {
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Out* out = static_cast<Out*>(out_data);
  if constexpr (form == Form::kVectorVector) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Op::F(a[i], b[i]);
  } else {
    // Read before the loop, also because out may be the scalar's place when n is 1.
    if (n == 0) return;
    if constexpr (form == Form::kVectorScalar) {
      const T scalar = b[0];
      BRAID_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) out[i] = Op::F(a[i], scalar);
    } else {
      const T scalar = a[0];
      BRAID_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) out[i] = Op::F(scalar, b[i]);
    }
  }
}

// `flatten`: the conversions come from a header that other translation units include too.
__attribute__((flatten)) static void BFloat16ToFloat(const uint16_t* x, float* out, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = BFloat16BitsToFloat(x[i]);
}
__attribute__((flatten)) static void FloatToBFloat16(const float* x, uint16_t* out, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = FloatToBFloat16Bits(x[i]);
}
__attribute__((flatten)) static void Float16ToFloat(const uint16_t* x, float* out, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Float16BitsToFloat(x[i]);
}
__attribute__((flatten)) static void FloatToFloat16(const float* x, uint16_t* out, int64_t n) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = FloatToFloat16Bits(x[i]);
}

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

constexpr ElementwiseLoops kElementwiseLoops = {
    // In the order of the enumerations.
    .unary = {BRAID_NUMBER_UNARY(Neg),       BRAID_FLOAT_UNARY(ExpOp),
              BRAID_FLOAT_UNARY(LogOp),      BRAID_FLOAT_UNARY(SqrtOp),
              BRAID_FLOAT_UNARY(Rsqrt),      BRAID_FLOAT_UNARY(TanhOp),
              BRAID_FLOAT_UNARY(SigmoidOp),  BRAID_FLOAT_UNARY(Relu),
              BRAID_FLOAT_UNARY(GeluErfOp),  BRAID_FLOAT_UNARY(GeluTanhOp),
              BRAID_NUMBER_UNARY(AbsOp),     BRAID_NUMBER_UNARY(Square),
              BRAID_FLOAT_UNARY(Reciprocal), BRAID_NUMBER_UNARY(Sign),
              BRAID_FLOAT_UNARY(Scale),      BRAID_FLOAT_UNARY(AddScalar),
              BRAID_BIT_UNARY(BitwiseNot),   BRAID_TRIGONOMETRIC(SinOp),
              BRAID_TRIGONOMETRIC(CosOp),    BRAID_MATH_OPS(BRAID_MATH)},
    .binary = {BRAID_ARITHMETIC(Add), BRAID_ARITHMETIC(Sub), BRAID_ARITHMETIC(Mul),
               BRAID_ARITHMETIC(Div), BRAID_ARITHMETIC(PowOp), BRAID_ARITHMETIC(Maximum),
               BRAID_ARITHMETIC(Minimum), BRAID_ARITHMETIC(Mod), BRAID_ARITHMETIC(FmodOp),
               BRAID_BIT_OPS(BRAID_BITS) BRAID_GRADIENT(ReluGrad), BRAID_GRADIENT(TanhGrad),
               BRAID_GRADIENT(SigmoidGrad), BRAID_GRADIENT(GeluErfGradOp),
               BRAID_GRADIENT(GeluTanhGradOp), BRAID_GRADIENT(BceWithLogits), BRAID_GRADIENT(Bce)},
    .compare = {BRAID_COMPARE_OPS(BRAID_COMPARE)},
    .bf16_to_f32 = BFloat16ToFloat,
    .f32_to_bf16 = FloatToBFloat16,
    .f16_to_f32 = Float16ToFloat,
    .f32_to_f16 = FloatToFloat16};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(ElementwiseLoops, BRAID_ISA::kElementwiseLoops)

}  // namespace braid::simd
