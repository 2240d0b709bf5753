// Updates of variables by optimizers, element by element.
#include "runtime/kernels/cpu/update_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void SgdLoop(T* var, const T* grad, int64_t n, const SgdParameters& parameters) {
  const T lr = static_cast<T>(parameters.lr), decay = static_cast<T>(parameters.weight_decay);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) var[i] -= lr * (grad[i] + decay * var[i]);
}

template <class T>
void MomentumLoop(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters) {
  const T lr = static_cast<T>(parameters.lr), decay = static_cast<T>(parameters.weight_decay);
  const T momentum = static_cast<T>(parameters.momentum);
  if (parameters.nesterov) {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const T g = grad[i] + decay * var[i];
      const T v = momentum * velocity[i] + g;
      velocity[i] = v;
      var[i] -= lr * (g + momentum * v);
    }
  } else {
    BRAID_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const T v = momentum * velocity[i] + (grad[i] + decay * var[i]);
      velocity[i] = v;
      var[i] -= lr * v;
    }
  }
}

template <class T>
void AdamLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  const double lr = parameters.lr, decay = parameters.weight_decay;
  const T keep = static_cast<T>(parameters.decoupled ? 1 - lr * decay : 1.0);
  const T coupled_decay = static_cast<T>(parameters.decoupled ? 0.0 : decay);
  const T beta1 = static_cast<T>(parameters.beta1), beta2 = static_cast<T>(parameters.beta2);
  const T new1 = static_cast<T>(1 - parameters.beta1), new2 = static_cast<T>(1 - parameters.beta2);
  const T epsilon = static_cast<T>(parameters.epsilon);
  const T step_size = static_cast<T>(lr / parameters.bias_correction1);
  const T root = static_cast<T>(1.0 / __builtin_sqrt(parameters.bias_correction2));
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] + coupled_decay * var[i];
    const T mi = beta1 * m[i] + new1 * g;
    const T vi = beta2 * v[i] + new2 * g * g;
    m[i] = mi;
    v[i] = vi;
    var[i] = keep * var[i] - step_size * mi / (Sqrt(vi) * root + epsilon);
  }
}

template <class T, bool centered, bool has_velocity>
void RmspropLoopOf(const RmspropOperands<T>& operands, int64_t n,
                   const RmspropParameters& parameters) {
  T* var = operands.var;
  const T* grad = operands.grad;
  T *square = operands.square, *mean = operands.mean, *velocity = operands.velocity;
  const T lr = static_cast<T>(parameters.lr), decay = static_cast<T>(parameters.weight_decay);
  const T alpha = static_cast<T>(parameters.alpha), fresh = static_cast<T>(1 - parameters.alpha);
  const T epsilon = static_cast<T>(parameters.epsilon);
  const T momentum = static_cast<T>(parameters.momentum);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] + decay * var[i];
    const T s = alpha * square[i] + fresh * g * g;
    square[i] = s;
    T spread = s;
    if constexpr (centered) {
      const T m = alpha * mean[i] + fresh * g;
      mean[i] = m;
      // Rounding may take more than there is.
      spread = s - m * m > T{0} ? s - m * m : T{0};
    }
    T move = g / (Sqrt(spread) + epsilon);
    if constexpr (has_velocity) {
      move = momentum * velocity[i] + move;
      velocity[i] = move;
    }
    var[i] -= lr * move;
  }
}

template <class T>
void RmspropLoop(const RmspropOperands<T>& operands, int64_t n,
                 const RmspropParameters& parameters) {
  if (operands.mean != nullptr) {
    return operands.velocity != nullptr ? RmspropLoopOf<T, true, true>(operands, n, parameters)
                                        : RmspropLoopOf<T, true, false>(operands, n, parameters);
  }
  return operands.velocity != nullptr ? RmspropLoopOf<T, false, true>(operands, n, parameters)
                                      : RmspropLoopOf<T, false, false>(operands, n, parameters);
}

template <class T>
void AdagradLoop(T* var, const T* grad, T* sum, int64_t n, const AdagradParameters& parameters) {
  const T lr = static_cast<T>(parameters.lr), decay = static_cast<T>(parameters.weight_decay);
  const T initial = static_cast<T>(parameters.initial);
  const T epsilon = static_cast<T>(parameters.epsilon);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] + decay * var[i];
    const T s = sum[i] + g * g;
    sum[i] = s;
    var[i] -= lr * g / (Sqrt(s + initial) + epsilon);
  }
}

template <class T>
void LarsLoop(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters) {
  const T lr = static_cast<T>(parameters.lr), decay = static_cast<T>(parameters.weight_decay);
  const T momentum = static_cast<T>(parameters.momentum);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T v = momentum * velocity[i] + lr * (grad[i] + decay * var[i]);
    velocity[i] = v;
    var[i] -= v;
  }
}

// AdamParameters in the element type, and what lamb makes of one element.
template <class T>
struct LambFactors {
  T beta1, beta2, new1, new2, epsilon, decay, scale1, root2;

  BRAID_INLINE LambFactors Of(const AdamParameters& p) {
    return {static_cast<T>(p.beta1),
            static_cast<T>(p.beta2),
            static_cast<T>(1 - p.beta1),
            static_cast<T>(1 - p.beta2),
            static_cast<T>(p.epsilon),
            static_cast<T>(p.weight_decay),
            static_cast<T>(1 / p.bias_correction1),
            static_cast<T>(1 / __builtin_sqrt(p.bias_correction2))};
  }
};
template <class T>
BRAID_INLINE T LambDirection(T var, T m, T v, const LambFactors<T>& f) {
  return m * f.scale1 / (Sqrt(v) * f.root2 + f.epsilon) + f.decay * var;
}

template <class T>
void LambLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  const LambFactors<T> f = LambFactors<T>::Of(parameters);
  const T lr = static_cast<T>(parameters.lr);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i];
    const T mi = f.beta1 * m[i] + f.new1 * g;
    const T vi = f.beta2 * v[i] + f.new2 * g * g;
    m[i] = mi;
    v[i] = vi;
    var[i] -= lr * LambDirection(var[i], mi, vi, f);
  }
}

// The sum of squares of the directions that LambLoop is about to go.
template <class T>
T LambSquareLoop(const T* var, const T* grad, const T* m, const T* v, int64_t n,
                 const AdamParameters& parameters) {
  const LambFactors<T> f = LambFactors<T>::Of(parameters);
  return SumOf<T>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        const T g = grad[i];
        const T d =
            LambDirection(var[i], f.beta1 * m[i] + f.new1 * g, f.beta2 * v[i] + f.new2 * g * g, f);
        return d * d;
      });
}

template <class T>
constexpr UpdateLoops<T> kUpdateLoops = {.sgd = SgdLoop<T>,
                                         .momentum = MomentumLoop<T>,
                                         .adam = AdamLoop<T>,
                                         .rmsprop = RmspropLoop<T>,
                                         .adagrad = AdagradLoop<T>,
                                         .lars = LarsLoop<T>,
                                         .lamb = LambLoop<T>,
                                         .lamb_square = LambSquareLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(UpdateLoops<float>, BRAID_ISA::kUpdateLoops<float>)
BRAID_DEFINE_LOOPS(UpdateLoops<double>, BRAID_ISA::kUpdateLoops<double>)

}  // namespace braid::simd
