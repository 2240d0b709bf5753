// Unary, binary and comparison loops over raw pointers, and casts.
#include "runtime/kernels/cpu/elementwise_loops.h"

#include "runtime/base/half.h"
#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

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

#define BRAID_NUMBER_UNARY(name, Op) \
  {UnaryLoop<Op, float>, UnaryLoop<Op, double>, UnaryLoop<Op, int32_t>, UnaryLoop<Op, int64_t>},
#define BRAID_FLOAT_UNARY(name, Op) {UnaryLoop<Op, float>, UnaryLoop<Op, double>},
#define BRAID_BITS_UNARY(name, Op) \
  {nullptr, nullptr, UnaryLoop<Op, int32_t>, UnaryLoop<Op, int64_t>, UnaryLoop<Op, uint8_t>},
#define BRAID_WAVE_UNARY(name, Op) {TrigonometricLoop<Op>, UnaryLoop<Op, double>},

#define BRAID_FORMS(Op, T, Out)                                                               \
  {                                                                                           \
    BinaryLoop<Op, T, Out, Form::kVectorVector>, BinaryLoop<Op, T, Out, Form::kVectorScalar>, \
        BinaryLoop<Op, T, Out, Form::kScalarVector>                                           \
  }
#define BRAID_NUMBER_BINARY(name, Op)                                    \
  {BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double),       \
   BRAID_FORMS(Op, int32_t, int32_t), BRAID_FORMS(Op, int64_t, int64_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},
#define BRAID_BITS_BINARY(name, Op)   \
  {{},                                \
   {},                                \
   BRAID_FORMS(Op, int32_t, int32_t), \
   BRAID_FORMS(Op, int64_t, int64_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},
#define BRAID_FLOAT_BINARY(name, Op) \
  {BRAID_FORMS(Op, float, float), BRAID_FORMS(Op, double, double)},
#define BRAID_COMPARE(name, Op)                                          \
  {BRAID_FORMS(Op, float, uint8_t), BRAID_FORMS(Op, double, uint8_t),    \
   BRAID_FORMS(Op, int32_t, uint8_t), BRAID_FORMS(Op, int64_t, uint8_t), \
   BRAID_FORMS(Op, uint8_t, uint8_t)},

constexpr ElementwiseLoops kElementwiseLoops = {
    .unary = {BRAID_UNARY_OPS(BRAID_NUMBER_UNARY, BRAID_FLOAT_UNARY, BRAID_BITS_UNARY,
                              BRAID_WAVE_UNARY)},
    .binary = {BRAID_BINARY_OPS(BRAID_NUMBER_BINARY, BRAID_BITS_BINARY, BRAID_FLOAT_BINARY)},
    .compare = {BRAID_COMPARE_OPS(BRAID_COMPARE)},
    .bf16_to_f32 = BFloat16ToFloat,
    .f32_to_bf16 = FloatToBFloat16,
    .f16_to_f32 = Float16ToFloat,
    .f32_to_f16 = FloatToFloat16};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(ElementwiseLoops, BRAID_ISA::kElementwiseLoops)

}  // namespace braid::simd
