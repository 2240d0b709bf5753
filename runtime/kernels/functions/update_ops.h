// What optimizers' updates do to one element of a variable and of its states. Included only by
// sources that are compiled once per instruction set and by those of a GPU's kernels.
#pragma once

#include "runtime/kernels/functions/math.h"
#include "runtime/kernels/functions/update_parameters.h"

namespace braid::simd::BRAID_ISA {

// The gradient of a weight decay beside a loss's. Without one an infinite variable has none either.
template <class T>
BRAID_INLINE T Decayed(T grad, T decay, T var) {
  return decay != T(0) ? grad + decay * var : grad;
}

// Each update has Of(parameters), its factors in the element type, and Step, which overwrites an
// element of the variable and of the states.
template <class T>
struct SgdUpdate {
  T lr, decay;

  BRAID_INLINE SgdUpdate Of(const SgdParameters& p) {
    return {static_cast<T>(p.lr), static_cast<T>(p.weight_decay)};
  }
  BRAID_INLINE void Step(const SgdUpdate& f, T& var, T grad) {
    var -= f.lr * Decayed(grad, f.decay, var);
  }
};

template <class T, bool nesterov>
struct MomentumUpdate {
  T lr, decay, momentum;

  BRAID_INLINE MomentumUpdate Of(const SgdParameters& p) {
    return {static_cast<T>(p.lr), static_cast<T>(p.weight_decay), static_cast<T>(p.momentum)};
  }
  BRAID_INLINE void Step(const MomentumUpdate& f, T& var, T grad, T& velocity) {
    if constexpr (nesterov) {
      const T g = Decayed(grad, f.decay, var);
      const T v = f.momentum * velocity + g;
      velocity = v;
      var -= f.lr * (g + f.momentum * v);
    } else {
      const T v = f.momentum * velocity + Decayed(grad, f.decay, var);
      velocity = v;
      var -= f.lr * v;
    }
  }
};

template <class T>
struct AdamUpdate {
  T keep, coupled_decay, beta1, beta2, new1, new2, epsilon, step_size, root;

  BRAID_INLINE AdamUpdate Of(const AdamParameters& p) {
    return {static_cast<T>(p.decoupled ? 1 - p.lr * p.weight_decay : 1.0),
            static_cast<T>(p.decoupled ? 0.0 : p.weight_decay),
            static_cast<T>(p.beta1),
            static_cast<T>(p.beta2),
            static_cast<T>(1 - p.beta1),
            static_cast<T>(1 - p.beta2),
            static_cast<T>(p.epsilon),
            static_cast<T>(p.lr / p.bias_correction1),
            static_cast<T>(1.0 / __builtin_sqrt(p.bias_correction2))};
  }
  BRAID_INLINE void Step(const AdamUpdate& f, T& var, T grad, T& m, T& v) {
    const T g = Decayed(grad, f.coupled_decay, var);
    const T mi = f.beta1 * m + f.new1 * g;
    const T vi = f.beta2 * v + f.new2 * g * g;
    m = mi;
    v = vi;
    var = f.keep * var - f.step_size * mi / (Sqrt(vi) * f.root + f.epsilon);
  }
};

// A state that the update lacks is null.
template <class T, bool centered, bool has_velocity>
struct RmspropUpdate {
  T lr, decay, alpha, fresh, epsilon, momentum;

  BRAID_INLINE RmspropUpdate Of(const RmspropParameters& p) {
    return {static_cast<T>(p.lr),      static_cast<T>(p.weight_decay),
            static_cast<T>(p.alpha),   static_cast<T>(1 - p.alpha),
            static_cast<T>(p.epsilon), static_cast<T>(p.momentum)};
  }
  BRAID_INLINE void Step(const RmspropUpdate& f, T& var, T grad, T& square, T* mean, T* velocity) {
    const T g = Decayed(grad, f.decay, var);
    const T s = f.alpha * square + f.fresh * g * g;
    square = s;
    T spread = s;
    if constexpr (centered) {
      const T m = f.alpha * *mean + f.fresh * g;
      *mean = m;
      // Rounding may take more than there is.
      spread = s - m * m > T{0} ? s - m * m : T{0};
    }
    T move = g / (Sqrt(spread) + f.epsilon);
    if constexpr (has_velocity) {
      move = f.momentum * *velocity + move;
      *velocity = move;
    }
    var -= f.lr * move;
  }
};

template <class T>
struct AdagradUpdate {
  T lr, decay, initial, epsilon;

  BRAID_INLINE AdagradUpdate Of(const AdagradParameters& p) {
    return {static_cast<T>(p.lr), static_cast<T>(p.weight_decay), static_cast<T>(p.initial),
            static_cast<T>(p.epsilon)};
  }
  BRAID_INLINE void Step(const AdagradUpdate& f, T& var, T grad, T& sum) {
    const T g = Decayed(grad, f.decay, var);
    const T s = sum + g * g;
    sum = s;
    var -= f.lr * g / (Sqrt(s + f.initial) + f.epsilon);
  }
};

// The learning rates of lars and lamb have their trust ratios in them.
template <class T>
struct LarsUpdate {
  T lr, decay, momentum;

  BRAID_INLINE LarsUpdate Of(const SgdParameters& p) {
    return {static_cast<T>(p.lr), static_cast<T>(p.weight_decay), static_cast<T>(p.momentum)};
  }
  BRAID_INLINE void Step(const LarsUpdate& f, T& var, T grad, T& velocity) {
    const T v = f.momentum * velocity + f.lr * Decayed(grad, f.decay, var);
    velocity = v;
    var -= v;
  }
};

template <class T>
struct LambUpdate {
  T lr, beta1, beta2, new1, new2, epsilon, decay, scale1, root2;

  BRAID_INLINE LambUpdate Of(const AdamParameters& p) {
    return {static_cast<T>(p.lr),
            static_cast<T>(p.beta1),
            static_cast<T>(p.beta2),
            static_cast<T>(1 - p.beta1),
            static_cast<T>(1 - p.beta2),
            static_cast<T>(p.epsilon),
            static_cast<T>(p.weight_decay),
            static_cast<T>(1 / p.bias_correction1),
            static_cast<T>(1 / __builtin_sqrt(p.bias_correction2))};
  }
  // Where it is about to go; m and v are new.
  BRAID_INLINE T Direction(const LambUpdate& f, T var, T m, T v) {
    return Decayed(m * f.scale1 / (Sqrt(v) * f.root2 + f.epsilon), f.decay, var);
  }
  BRAID_INLINE void Step(const LambUpdate& f, T& var, T grad, T& m, T& v) {
    const T mi = f.beta1 * m + f.new1 * grad;
    const T vi = f.beta2 * v + f.new2 * grad * grad;
    m = mi;
    v = vi;
    var -= f.lr * Direction(f, var, mi, vi);
  }
  // Of the direction that Step would go, with m and v as they are before it.
  BRAID_INLINE T Square(const LambUpdate& f, T var, T grad, T m, T v) {
    const T d = Direction(f, var, f.beta1 * m + f.new1 * grad, f.beta2 * v + f.new2 * grad * grad);
    return d * d;
  }
};

}  // namespace braid::simd::BRAID_ISA
