// What elementwise loops do to one element, for loops of other families too. Included only by
// sources that are compiled once per instruction set.
#pragma once

#include <cstdint>

#include "runtime/base/independent.h"
#include "runtime/kernels/functions/math.h"

namespace braid::simd::BRAID_ISA {

// Integer arithmetic wraps around.
template <class T>
struct WrappingOf {
  using type = T;
};
template <>
struct WrappingOf<int32_t> {
  using type = uint32_t;
};
template <>
struct WrappingOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Wrapping = typename WrappingOf<T>::type;
template <class T>
inline constexpr bool kIsFloat = T(0.5) != T(0);
template <class T>
inline constexpr bool kIsSigned = T(-1) < T(0);
template <class T>
inline constexpr T kBits = T(8 * sizeof(T));
template <class T>
BRAID_INLINE bool IsNegative(T x) {
  if constexpr (kIsSigned<T>) {
    return x < 0;
  } else {
    return false;
  }
}

// Unary: T x, T p (the parameter).
struct Neg {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    if constexpr (kIsFloat<T>) {
      return -x;
    } else {
      return static_cast<T>(0 - static_cast<Wrapping<T>>(x));
    }
  }
};
struct ExpOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Exp(x);
  }
};
struct LogOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Log(x);
  }
};
struct SqrtOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Sqrt(x);
  }
};
struct Rsqrt {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return T{1} / Sqrt(x);
  }
};
struct TanhOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Tanh(x);
  }
};
struct SigmoidOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Sigmoid(x);
  }
};
struct Relu {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return x < T{0} ? T{0} : x;
  }
};
struct GeluErfOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return GeluErf(x);
  }
};
struct GeluTanhOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return GeluTanh(x);
  }
};
struct AbsOp {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    if constexpr (kIsFloat<T>) {
      return Abs(x);
    } else {
      return x < 0 ? static_cast<T>(0 - static_cast<Wrapping<T>>(x)) : x;
    }
  }
};
struct Square {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(x));
  }
};
struct Reciprocal {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return T{1} / x;
  }
};
struct Sign {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return (x > T{0} ? T{1} : T{0}) - (x < T{0} ? T{1} : T{0});
  }
};
struct Scale {
  template <class T>
  BRAID_INLINE T F(T x, T p) {
    return x * p;
  }
};
struct AddScalar {
  template <class T>
  BRAID_INLINE T F(T x, T p) {
    return x + p;
  }
};
struct BitwiseNot {
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return static_cast<T>(~x);
  }
};

struct SinOp {
  BRAID_INLINE float Near(float x) { return SinNear(x, 0); }
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Sin(x);
  }
};
struct CosOp {
  BRAID_INLINE float Near(float x) { return SinNear(x, 1); }
  template <class T>
  BRAID_INLINE T F(T x, T) {
    return Cos(x);
  }
};

// One function of math.h each.
#define BRAID_MATH_STRUCT(Name) \
  struct Name##Op {             \
    template <class T>          \
    BRAID_INLINE T F(T x, T) {  \
      return Name(x);           \
    }                           \
  };
BRAID_MATH_STRUCT(Tan)
BRAID_MATH_STRUCT(Asin)
BRAID_MATH_STRUCT(Acos)
BRAID_MATH_STRUCT(Atan)
BRAID_MATH_STRUCT(Sinh)
BRAID_MATH_STRUCT(Cosh)
BRAID_MATH_STRUCT(Asinh)
BRAID_MATH_STRUCT(Acosh)
BRAID_MATH_STRUCT(Atanh)
BRAID_MATH_STRUCT(Erf)
BRAID_MATH_STRUCT(Expm1)
BRAID_MATH_STRUCT(Log1p)
BRAID_MATH_STRUCT(Floor)
BRAID_MATH_STRUCT(Ceil)
BRAID_MATH_STRUCT(Round)
BRAID_MATH_STRUCT(Trunc)
#undef BRAID_MATH_STRUCT

// Binary.
struct Add {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Sub {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};
struct Mul {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct Div {
  // Integers: towards zero; x / 0 is 0, and the overflow of min / -1 wraps.
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return a / b;
    } else {
      if (b == 0) return 0;
      if constexpr (kIsSigned<T>) {
        if (b == -1) return static_cast<T>(0 - static_cast<Wrapping<T>>(a));
      }
      return static_cast<T>(a / b);
    }
  }
};
struct PowOp {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return Pow(a, b);
    } else {
      if constexpr (kIsSigned<T>) {
        if (b < 0) return a == 1 ? 1 : (a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
      }
      Wrapping<T> result = 1, base = static_cast<Wrapping<T>>(a);
      for (T exponent = b; exponent > 0; exponent = static_cast<T>(exponent >> 1)) {
        if (exponent & 1) result = static_cast<Wrapping<T>>(result * base);
        base = static_cast<Wrapping<T>>(base * base);
      }
      return static_cast<T>(result);
    }
  }
};
struct Maximum {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return a > b || a != a ? a : b;  // NaN if either is
  }
};
struct Minimum {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
// The remainder has the sign of b; whole numbers: 0 where b is 0.
struct Mod {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    T rest = 0;
    if constexpr (kIsFloat<T>) {
      rest = Fmod(a, b);
      if (rest == 0) return b < 0 ? -T{0} : T{0};  // zeros have signs, too
    } else {
      if (b == 0) return 0;
      if constexpr (kIsSigned<T>) {
        if (b == -1) return 0;
      }
      rest = static_cast<T>(a % b);
    }
    return rest != 0 && IsNegative(rest) != IsNegative(b) ? static_cast<T>(rest + b) : rest;
  }
};
struct FmodOp {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return Fmod(a, b);
    } else {
      if (b == 0) return 0;
      if constexpr (kIsSigned<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    }
  }
};
struct BitwiseAnd {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitwiseOr {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitwiseXor {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
// A count that no shift takes shifts everything out.
struct ShiftLeft {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    const bool fits = !IsNegative(b) && b < kBits<T>;
    return fits ? static_cast<T>(static_cast<Wrapping<T>>(a) << b) : T{0};
  }
};
struct ShiftRight {
  template <class T>
  BRAID_INLINE T F(T a, T b) {
    const bool fits = !IsNegative(b) && b < kBits<T>;
    return fits ? static_cast<T>(a >> b) : static_cast<T>(IsNegative(a) ? -1 : 0);
  }
};
struct ReluGrad {
  template <class T>
  BRAID_INLINE T F(T y, T dy) {
    return y > T{0} ? dy : T{0};
  }
};
struct TanhGrad {
  template <class T>
  BRAID_INLINE T F(T y, T dy) {
    return dy * (T{1} - y * y);
  }
};
struct SigmoidGrad {
  template <class T>
  BRAID_INLINE T F(T y, T dy) {
    return dy * y * (T{1} - y);
  }
};
struct GeluErfGradOp {
  template <class T>
  BRAID_INLINE T F(T x, T dy) {
    return GeluErfGrad(x, dy);
  }
};
struct GeluTanhGradOp {
  template <class T>
  BRAID_INLINE T F(T x, T dy) {
    return GeluTanhGrad(x, dy);
  }
};

// -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)); for t in [0, 1] no terms cancel.
struct BceWithLogits {
  template <class T>
  BRAID_INLINE T F(T x, T t) {
    return (x > T{0} ? x - x * t : -x * t) + Log1p(Exp(-Abs(x)));
  }
};
// The same of sigmoid(x) itself; logarithms end at -100.
struct Bce {
  template <class T>
  BRAID_INLINE T F(T p, T t) {
    const T yes = Log(p), no = Log1p(-p);
    return -(t * (yes < T{-100} ? T{-100} : yes) + (T{1} - t) * (no < T{-100} ? T{-100} : no));
  }
};

struct Equal {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a != b;
  }
};
struct Less {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  BRAID_INLINE uint8_t F(T a, T b) {
    return a >= b;
  }
};

}  // namespace braid::simd::BRAID_ISA
