// Elementary functions as straight-line code, so that loops over them vectorise: float by
// polynomials (at most a few units in the last place, special values as in libm), double by libm.
// Included only by sources that are compiled once per instruction set, into its namespace, and by
// those of a GPU's kernels, which say what BRAID_INLINE is there: nothing here may be shared with
// other translation units. Polynomials: Cephes (S. L. Moshier); erf: N.
// Juffa.
#pragma once

#include <cstdint>

#ifndef BRAID_INLINE
#define BRAID_INLINE static inline __attribute__((always_inline))
#endif

namespace braid::simd::BRAID_ISA {

BRAID_INLINE float FromBits(int32_t bits) { return __builtin_bit_cast(float, bits); }
BRAID_INLINE int32_t ToBits(float x) { return __builtin_bit_cast(int32_t, x); }

// exp(x) = 2^exponent * (1 + fraction), |fraction| about 0.41 at most.
struct ExpParts {
  float fraction;
  uint32_t exponent;
};
BRAID_INLINE ExpParts SplitExp(float x) {
  // Beyond these bounds the result is infinity or 0; the comparisons let NaN through.
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  // Unsigned: a NaN's exponent is arbitrary.
  return {p * (r * r) + r,
          static_cast<uint32_t>(ToBits(shifted)) - static_cast<uint32_t>(ToBits(kRounder))};
}

BRAID_INLINE float PolynomialExp(float x) {
  const auto [fraction, exponent] = SplitExp(x);
  const float p = fraction + 1.0f;
  // 2^exponent in two factors: it runs from -151 to 129.
  const int32_t half = static_cast<int32_t>(exponent) >> 1;
  const uint32_t rest = exponent - static_cast<uint32_t>(half);
  const float scale1 = FromBits(static_cast<int32_t>((static_cast<uint32_t>(half) + 127u) << 23));
  const float scale2 = FromBits(static_cast<int32_t>((rest + 127u) << 23));
  return p * scale1 * scale2;
}
// A processor that has an instruction for it says so.
#ifndef BRAID_EXP
#define BRAID_EXP PolynomialExp
#endif
BRAID_INLINE float Exp(float x) { return BRAID_EXP(x); }
BRAID_INLINE double Exp(double x) { return __builtin_exp(x); }

BRAID_INLINE float Log(float x) {
  const float infinity = __builtin_inff();
  const bool subnormal = x < 1.17549435e-38f;
  const float normal = subnormal ? x * 8388608.0f : x;
  const int32_t bits = ToBits(normal);
  const int32_t shifted =
      static_cast<int32_t>(static_cast<uint32_t>(bits) - 0x3f3504f3u);  // mantissa from sqrt(1/2)
  const float e = static_cast<float>(shifted >> 23) - (subnormal ? 23.0f : 0.0f);
  const float f = FromBits((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  float y = f * z * p;
  y = y - e * 2.12194440e-4f;
  y = y - 0.5f * z;
  float result = f + y;
  result = result + e * 0.693359375f;
  result = x == 0.0f ? -infinity : result;
  result = x < 0.0f ? __builtin_nanf("") : result;
  return x < infinity ? result : x;  // infinity and NaN
}
BRAID_INLINE double Log(double x) { return __builtin_log(x); }

// exp(x) - 1: as Exp, but 1 is taken away from the power of two, not from the product.
BRAID_INLINE float Expm1(float x) {
  const auto [fraction, unsigned_exponent] = SplitExp(x);
  // 2^n = 2 * power, for which n of -125 and less make no difference.
  const int32_t exponent = static_cast<int32_t>(unsigned_exponent);
  const int32_t bounded = exponent < -125 ? -125 : (exponent > 129 ? 129 : exponent);
  const float half = FromBits((bounded + 126) << 23);
  return 2.0f * (half * fraction + (half - 0.5f));
}
BRAID_INLINE double Expm1(double x) { return __builtin_expm1(x); }

// log(u) of u = 1 + x, and what the rounding of u lost, divided by u.
BRAID_INLINE float Log1p(float x) {
  const float u = 1.0f + x;
  const float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  const bool is_ordinary = u > 0.0f && u < __builtin_inff();
  return Log(u) + (is_ordinary ? lost / u : 0.0f);
}
BRAID_INLINE double Log1p(double x) { return __builtin_log1p(x); }

BRAID_INLINE float Sqrt(float x) { return __builtin_sqrtf(x); }
BRAID_INLINE double Sqrt(double x) { return __builtin_sqrt(x); }
BRAID_INLINE float Abs(float x) { return __builtin_fabsf(x); }
BRAID_INLINE double Abs(double x) { return __builtin_fabs(x); }
BRAID_INLINE float Pow(float x, float y) { return __builtin_powf(x, y); }
BRAID_INLINE double Pow(double x, double y) { return __builtin_pow(x, y); }

// sin(x + quarter * pi / 2) for |x| up to kMostReduced: beyond it pi / 2 in three parts is not
// accurate enough.
inline constexpr float kMostReduced = 8192.0f;
BRAID_INLINE float SinNear(float x, uint32_t quarter) {
  constexpr float kRounder = 12582912.0f;
  const float shifted = x * 0.636619772f + kRounder;
  const float n = shifted - kRounder;
  float r = x - n * 1.5703125f;
  r = r - n * 4.837512969970703125e-4f;
  r = r - n * 7.54978995489188216e-8f;
  const float z = r * r;
  float sine = -1.9515295891e-4f;
  sine = sine * z + 8.3321608736e-3f;
  sine = sine * z - 1.6666654611e-1f;
  sine = sine * z * r + r;
  float cosine = 2.443315711809948e-5f;
  cosine = cosine * z - 1.388731625493765e-3f;
  cosine = cosine * z + 4.166664568298827e-2f;
  cosine = cosine * z * z - 0.5f * z + 1.0f;
  const uint32_t quadrant = static_cast<uint32_t>(ToBits(shifted)) + quarter;
  const float y = (quadrant & 1u) != 0 ? cosine : sine;
  return FromBits(ToBits(y) ^ static_cast<int32_t>((quadrant & 2u) << 30));
}

// Functions that programs use rarely: libm, in both types.
#define BRAID_LIBM(Name, name)                                        \
  BRAID_INLINE float Name(float x) { return __builtin_##name##f(x); } \
  BRAID_INLINE double Name(double x) { return __builtin_##name(x); }
BRAID_LIBM(Sin, sin)
BRAID_LIBM(Cos, cos)
BRAID_LIBM(Tan, tan)
BRAID_LIBM(Asin, asin)
BRAID_LIBM(Acos, acos)
BRAID_LIBM(Atan, atan)
BRAID_LIBM(Sinh, sinh)
BRAID_LIBM(Cosh, cosh)
BRAID_LIBM(Asinh, asinh)
BRAID_LIBM(Acosh, acosh)
BRAID_LIBM(Atanh, atanh)
// Instructions where the machine has them.
BRAID_LIBM(Floor, floor)
BRAID_LIBM(Ceil, ceil)
BRAID_LIBM(Trunc, trunc)
BRAID_LIBM(Round, rint)  // to even: nobody changes the rounding mode
#undef BRAID_LIBM
BRAID_INLINE float Fmod(float a, float b) { return __builtin_fmodf(a, b); }
BRAID_INLINE double Fmod(double a, double b) { return __builtin_fmod(a, b); }

BRAID_INLINE float CopySign(float magnitude, float sign) {
  return FromBits((ToBits(magnitude) & 0x7fffffff) |
                  (ToBits(sign) & static_cast<int32_t>(0x80000000u)));
}

BRAID_INLINE float Tanh(float x) {
  const float a = Abs(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float far = CopySign(1.0f - 2.0f / (Exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;  // NaN: far is NaN too
}
BRAID_INLINE double Tanh(double x) { return __builtin_tanh(x); }

template <class T>
BRAID_INLINE T Sigmoid(T x) {
  return T{1} / (T{1} + Exp(-x));
}

BRAID_INLINE float Erf(float x) {
  const float t = Abs(x);
  const float s = x * x;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  far = far * s + u;
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  // From 4 on erf rounds to 1; the polynomial itself is not meant for large arguments.
  far = CopySign(t > 4.0f ? 1.0f : 1.0f - Exp(far), x);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? far : near;  // NaN: near is NaN too
}
BRAID_INLINE double Erf(double x) { return __builtin_erf(x); }

inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

template <class T>
BRAID_INLINE T GeluErf(T x) {
  return T(0.5) * x * (T{1} + Erf(x * T(kInvSqrt2)));
}
template <class T>
BRAID_INLINE T GeluErfGrad(T x, T dy) {
  const T cdf = T(0.5) * (T{1} + Erf(x * T(kInvSqrt2)));
  return dy * (cdf + x * Exp(T(-0.5) * x * x) * T(kInvSqrt2Pi));
}
// (1 + tanh u) / 2 = sigmoid(2 u).
template <class T>
BRAID_INLINE T GeluTanh(T x) {
  return x * Sigmoid(T(2 * kSqrt2OverPi) * (x + T(kGeluCubic) * x * x * x));
}
template <class T>
BRAID_INLINE T GeluTanhGrad(T x, T dy) {
  const T s = Sigmoid(T(2 * kSqrt2OverPi) * (x + T(kGeluCubic) * x * x * x));
  const T slope = T(2 * kSqrt2OverPi) * (T{1} + T(3 * kGeluCubic) * x * x);
  return dy * (s + x * s * (T{1} - s) * slope);
}

}  // namespace braid::simd::BRAID_ISA
