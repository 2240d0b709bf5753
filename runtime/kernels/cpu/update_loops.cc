// Updates of variables by optimizers, element by element.
#include "runtime/kernels/cpu/update_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/cpu/simd/row_sums.h"
#include "runtime/kernels/functions/update_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void SgdLoop(T* var, const T* grad, int64_t n, const SgdParameters& parameters) {
  using Update = SgdUpdate<T>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i]);
}

template <class T, bool nesterov>
void MomentumLoopOf(T* var, const T* grad, T* velocity, int64_t n,
                    const SgdParameters& parameters) {
  using Update = MomentumUpdate<T, nesterov>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i], velocity[i]);
}

template <class T>
void MomentumLoop(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters) {
  return parameters.nesterov ? MomentumLoopOf<T, true>(var, grad, velocity, n, parameters)
                             : MomentumLoopOf<T, false>(var, grad, velocity, n, parameters);
}

template <class T>
void EagerAdamLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  using Update = AdamUpdate<T>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i], m[i], v[i]);
}

// A condition in the loop above would round some of its elements otherwise, those at its end.
template <class T>
void LazyAdamLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  constexpr int64_t kPart = 256;
  T new_var[kPart], new_m[kPart], new_v[kPart];
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t count = n - i < kPart ? n - i : kPart;
    BRAID_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) {
      new_var[j] = var[i + j];
      new_m[j] = m[i + j];
      new_v[j] = v[i + j];
    }
    EagerAdamLoop(new_var, grad + i, new_m, new_v, count, parameters);
    BRAID_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) {
      const bool moves = grad[i + j] != T(0);
      var[i + j] = moves ? new_var[j] : var[i + j];
      m[i + j] = moves ? new_m[j] : m[i + j];
      v[i + j] = moves ? new_v[j] : v[i + j];
    }
  }
}

template <class T>
void AdamLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  return parameters.lazy ? LazyAdamLoop(var, grad, m, v, n, parameters)
                         : EagerAdamLoop(var, grad, m, v, n, parameters);
}

template <class T, bool centered, bool has_velocity>
void RmspropLoopOf(const RmspropOperands<T>& operands, int64_t n,
                   const RmspropParameters& parameters) {
  using Update = RmspropUpdate<T, centered, has_velocity>;
  T* var = operands.var;
  const T* grad = operands.grad;
  T *square = operands.square, *mean = operands.mean, *velocity = operands.velocity;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    Update::Step(f, var[i], grad[i], square[i], centered ? mean + i : nullptr,
                 has_velocity ? velocity + i : nullptr);
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
  using Update = AdagradUpdate<T>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i], sum[i]);
}

template <class T>
void LarsLoop(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters) {
  using Update = LarsUpdate<T>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i], velocity[i]);
}

template <class T>
void LambLoop(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters) {
  using Update = LambUpdate<T>;
  const Update f = Update::Of(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) Update::Step(f, var[i], grad[i], m[i], v[i]);
}

// The sum of squares of the directions that LambLoop is about to go.
template <class T>
T LambSquareLoop(const T* var, const T* grad, const T* m, const T* v, int64_t n,
                 const AdamParameters& parameters) {
  using Update = LambUpdate<T>;
  const Update f = Update::Of(parameters);
  return SumOf<T>(
      n, [=](int64_t i) __attribute__((always_inline)) {
        return Update::Square(f, var[i], grad[i], m[i], v[i]);
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
