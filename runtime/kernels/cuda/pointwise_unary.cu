// Kernels of what works on each element of one input: functions, activations and their gradients.
#include "runtime/kernels/cuda/pointwise.h"
#include "runtime/kernels/cuda/pointwise_map.h"
#include "runtime/kernels/functions/activation_ops.h"

namespace braid::cuda {
namespace {

using simd::ActivationOp;
using simd::UnaryOp;

// Functions of floats, which are many and have to be fast, have kernels of their own.
template <class Op>
struct FloatUnary : Inputs<1> {
  using In = float;
  using Out = float;
  static constexpr bool kIsDense = true;
  float p;
  __device__ __forceinline__ explicit FloatUnary(const PointwiseLaunch& launch)
      : p(static_cast<float>(launch.parameters.a)) {}
  __device__ __forceinline__ float operator()(float x) const { return Op::F(x, p); }
};

#define BRAID_CASE(name, Op) \
  case UnaryOp::k##name:     \
    return fn::Op::F(x, p);
#define BRAID_NO_CASE(name, Op)

// Those of other types choose at run time.
template <class T>
struct AnyUnary : Inputs<1> {
  using In = T;
  using Out = T;
  static constexpr bool kIsDense = true;
  UnaryOp op;
  T p;
  __device__ __forceinline__ explicit AnyUnary(const PointwiseLaunch& launch)
      : op(static_cast<UnaryOp>(launch.op)), p(static_cast<T>(launch.parameters.a)) {}
  __device__ __forceinline__ T operator()(T x) const {
    if constexpr (fn::kIsFloat<T>) {
      switch (op) {
        BRAID_UNARY_OPS(BRAID_CASE, BRAID_CASE, BRAID_NO_CASE, BRAID_CASE)
        default:
          return x;
      }
    } else if constexpr (fn::kIsSigned<T>) {
      switch (op) {
        BRAID_UNARY_OPS(BRAID_CASE, BRAID_NO_CASE, BRAID_CASE, BRAID_NO_CASE)
        default:
          return x;
      }
    } else {
      return fn::BitwiseNot::F(x, p);
    }
  }
};
#undef BRAID_CASE
#undef BRAID_NO_CASE

#define BRAID_KERNEL(name, Op) LaunchMap<FloatUnary<fn::Op>>,
#define BRAID_NO_KERNEL(name, Op) nullptr,
constexpr PointwiseFn kFloatUnaries[] = {
    BRAID_UNARY_OPS(BRAID_KERNEL, BRAID_KERNEL, BRAID_NO_KERNEL, BRAID_KERNEL)};
#undef BRAID_KERNEL
#undef BRAID_NO_KERNEL

Error LaunchUnary(const Queue& queue, const PointwiseLaunch& launch) {
  switch (launch.compute) {
    case DType::kF32:
      return kFloatUnaries[launch.op](queue, launch);
    case DType::kF64:
      return LaunchMap<AnyUnary<double>>(queue, launch);
    case DType::kI32:
      return LaunchMap<AnyUnary<int32_t>>(queue, launch);
    case DType::kI64:
      return LaunchMap<AnyUnary<int64_t>>(queue, launch);
    default:
      return LaunchMap<AnyUnary<uint8_t>>(queue, launch);
  }
}

template <class Op>
struct FloatActivation : Inputs<1> {
  using In = float;
  using Out = float;
  static constexpr bool kIsDense = true;
  fn::Constants<float> p;
  __device__ __forceinline__ explicit FloatActivation(const PointwiseLaunch& launch)
      : p(fn::ConstantsOf<float>(launch.parameters)) {}
  __device__ __forceinline__ float operator()(float x) const { return Op::F(x, p); }
};
template <class Op>
struct FloatActivationGrad : Inputs<2> {
  using In = float;
  using Out = float;
  static constexpr bool kIsDense = true;
  fn::Constants<float> p;
  __device__ __forceinline__ explicit FloatActivationGrad(const PointwiseLaunch& launch)
      : p(fn::ConstantsOf<float>(launch.parameters)) {}
  __device__ __forceinline__ float operator()(float x, float dy) const { return dy * Op::D(x, p); }
};

// F, or D with `is_grad`, of doubles.
template <bool is_grad>
__device__ __forceinline__ double AnyActivationAt(ActivationOp op, double x,
                                                  const fn::Constants<double>& p) {
#define BRAID_CASE(name, Op)                   \
  case ActivationOp::k##name:                  \
    if constexpr (is_grad) {                   \
      return fn::Op::template D<double>(x, p); \
    } else {                                   \
      return fn::Op::template F<double>(x, p); \
    }
  switch (op) {
    BRAID_ACTIVATIONS(BRAID_CASE)
    default:
      return x;
  }
#undef BRAID_CASE
}

struct AnyActivation : Inputs<1> {
  using In = double;
  using Out = double;
  static constexpr bool kIsDense = true;
  ActivationOp op;
  fn::Constants<double> p;
  __device__ __forceinline__ explicit AnyActivation(const PointwiseLaunch& launch)
      : op(static_cast<ActivationOp>(launch.op)), p(fn::ConstantsOf<double>(launch.parameters)) {}
  __device__ __forceinline__ double operator()(double x) const {
    return AnyActivationAt<false>(op, x, p);
  }
};
struct AnyActivationGrad : Inputs<2> {
  using In = double;
  using Out = double;
  static constexpr bool kIsDense = true;
  ActivationOp op;
  fn::Constants<double> p;
  __device__ __forceinline__ explicit AnyActivationGrad(const PointwiseLaunch& launch)
      : op(static_cast<ActivationOp>(launch.op)), p(fn::ConstantsOf<double>(launch.parameters)) {}
  __device__ __forceinline__ double operator()(double x, double dy) const {
    return dy * AnyActivationAt<true>(op, x, p);
  }
};

#define BRAID_KERNEL(name, Op) LaunchMap<FloatActivation<fn::Op>>,
#define BRAID_GRAD_KERNEL(name, Op) LaunchMap<FloatActivationGrad<fn::Op>>,
constexpr PointwiseFn kFloatActivations[] = {BRAID_ACTIVATIONS(BRAID_KERNEL)};
constexpr PointwiseFn kFloatActivationGrads[] = {BRAID_ACTIVATIONS(BRAID_GRAD_KERNEL)};
#undef BRAID_KERNEL
#undef BRAID_GRAD_KERNEL

Error LaunchActivation(const Queue& queue, const PointwiseLaunch& launch) {
  if (launch.compute == DType::kF64) return LaunchMap<AnyActivation>(queue, launch);
  return kFloatActivations[launch.op](queue, launch);
}
Error LaunchActivationGrad(const Queue& queue, const PointwiseLaunch& launch) {
  if (launch.compute == DType::kF64) return LaunchMap<AnyActivationGrad>(queue, launch);
  return kFloatActivationGrads[launch.op](queue, launch);
}

template <class T>
struct IntegerClip : Inputs<1> {
  using In = T;
  using Out = T;
  static constexpr bool kIsDense = true;
  T low, high;
  __device__ __forceinline__ explicit IntegerClip(const PointwiseLaunch& launch)
      : low(static_cast<T>(launch.low)), high(static_cast<T>(launch.high)) {}
  __device__ __forceinline__ T operator()(T x) const {
    const T raised = x < low ? low : x;
    return high < raised ? high : raised;
  }
};

Error LaunchIntegerClip(const Queue& queue, const PointwiseLaunch& launch) {
  return VisitIntegers(launch.compute, [&](auto element) {
    return LaunchMap<IntegerClip<decltype(element)>>(queue, launch);
  });
}

template <class T>
struct Test : Inputs<1> {
  using In = T;
  using Out = uint8_t;
  static constexpr bool kIsDense = true;
  bool is_nan;
  T above, below;
  __device__ __forceinline__ explicit Test(const PointwiseLaunch& launch)
      : is_nan(static_cast<TestOp>(launch.op) == TestOp::kIsNan),
        above(static_cast<T>(launch.parameters.a)),
        below(static_cast<T>(launch.parameters.b)) {}
  __device__ __forceinline__ uint8_t operator()(T x) const {
    return is_nan ? x != x : x == above || x == below;
  }
};

Error LaunchTest(const Queue& queue, const PointwiseLaunch& launch) {
  return launch.compute == DType::kF64 ? LaunchMap<Test<double>>(queue, launch)
                                       : LaunchMap<Test<float>>(queue, launch);
}

}  // namespace

void AddUnaryLaunches(PointwiseTable& table) {
  table.unary = LaunchUnary;
  table.activation = LaunchActivation;
  table.activation_grad = LaunchActivationGrad;
  table.integer_clip = LaunchIntegerClip;
  table.test = LaunchTest;
}

}  // namespace braid::cuda
