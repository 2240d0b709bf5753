// What activations and their gradients do to one element: functions of x and of parameters p.
// Included only by sources that are compiled once per instruction set and by those of a GPU's
// kernels.
#pragma once

#include "runtime/kernels/functions/math.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid::simd::BRAID_ISA {

// ActivationParameters in the element type.
template <class T>
struct Constants {
  T a, b, c;
};

template <class T>
BRAID_INLINE T Within(T x, T low, T high) {
  const T raised = x < low ? low : x;  // NaN passes
  return raised > high ? high : raised;
}

// log(1 + exp(x)).
template <class T>
BRAID_INLINE T LogOnePlusExp(T x) {
  return (x > T{0} ? x : T{0}) + Log1p(Exp(-Abs(x)));
}

// Each has F(x, p), the function, and D(x, p), its derivative.
struct SiluActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>&) {
    return x * Sigmoid(x);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>&) {
    const T s = Sigmoid(x);
    return s * (T{1} + x * (T{1} - s));
  }
};
// tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2); from 20 on it is 1.
struct MishActivation {
  template <class T>
  BRAID_INLINE T TanhSoftplus(T x) {
    const T e = Exp(x > T{20} ? T{20} : x);
    const T n = e * (e + T{2});
    return n / (n + T{2});
  }
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>&) {
    return x * TanhSoftplus(x);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>&) {
    const T t = TanhSoftplus(x);
    return t + x * Sigmoid(x) * (T{1} - t * t);
  }
};
// a: alpha, b: gamma, c: rate.
struct EluActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    const T below = p.a * Expm1(p.c * (x > T{0} ? T{0} : x));
    return p.b * (x > T{0} ? x : below);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    const T below = p.a * p.c * Exp(p.c * (x > T{0} ? T{0} : x));
    return p.b * (x > T{0} ? T{1} : below);
  }
};
struct LeakyReluActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return x < T{0} ? p.a * x : x;
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return x < T{0} ? p.a : T{1};
  }
};
struct HardSigmoidActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return Within(p.a * x + p.b, T{0}, T{1});
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    const T y = p.a * x + p.b;
    return y > T{0} && y < T{1} ? p.a : T{0};
  }
};
struct HardSwishActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>&) {
    return x * Within(x * T(1.0 / 6) + T(0.5), T{0}, T{1});
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>&) {
    const T inside = x * T(1.0 / 3) + T(0.5);
    return x <= T{-3} ? T{0} : (x >= T{3} ? T{1} : inside);
  }
};
// a: low, b: high.
struct ClipActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return Within(x, p.a, p.b);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return x >= p.a && x <= p.b ? T{1} : T{0};
  }
};
// a: beta.
struct SoftplusActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return LogOnePlusExp(p.a * x) / p.a;
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return Sigmoid(p.a * x);
  }
};
struct LogSigmoidActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>&) {
    return -LogOnePlusExp(-x);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>&) {
    return Sigmoid(-x);
  }
};
struct SoftsignActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>&) {
    return x / (T{1} + Abs(x));
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>&) {
    const T root = T{1} / (T{1} + Abs(x));
    return root * root;
  }
};
struct ThresholdedReluActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return x <= p.a ? T{0} : x;
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return x <= p.a ? T{0} : T{1};
  }
};
// a: lambda, b: bias.
struct ShrinkActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    return x < -p.a ? x + p.b : (x > p.a ? x - p.b : T{0});
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return x < -p.a || x > p.a ? T{1} : T{0};
  }
};
// a: delta. x^2 / 2 near 0, lines beyond.
struct HuberActivation {
  template <class T>
  BRAID_INLINE T F(T x, const Constants<T>& p) {
    const T size = Abs(x);
    return size <= p.a ? T(0.5) * x * x : p.a * (size - T(0.5) * p.a);
  }
  template <class T>
  BRAID_INLINE T D(T x, const Constants<T>& p) {
    return Within(x, -p.a, p.a);
  }
};

template <class T>
BRAID_INLINE Constants<T> ConstantsOf(const ActivationParameters& p) {
  return {static_cast<T>(p.a), static_cast<T>(p.b), static_cast<T>(p.c)};
}

}  // namespace braid::simd::BRAID_ISA
