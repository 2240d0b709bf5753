// Loops of optimizers: updates of n elements of a variable.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/functions/update_parameters.h"

namespace braid::simd {

template <class T>
struct RmspropOperands {
  T* var;
  const T* grad;
  T* square;
  T* mean;      // null: not centered
  T* velocity;  // null: no momentum
};

template <class T>
struct UpdateLoops {
  void (*sgd)(T* var, const T* grad, int64_t n, const SgdParameters& parameters);
  void (*momentum)(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters);
  void (*adam)(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters);
  void (*rmsprop)(const RmspropOperands<T>& operands, int64_t n,
                  const RmspropParameters& parameters);
  void (*adagrad)(T* var, const T* grad, T* sum, int64_t n, const AdagradParameters& parameters);
  // The learning rates of lars and lamb have their trust ratios in them.
  void (*lars)(T* var, const T* grad, T* velocity, int64_t n, const SgdParameters& parameters);
  void (*lamb)(T* var, const T* grad, T* m, T* v, int64_t n, const AdamParameters& parameters);
  // The sum of squares of the directions that lamb is about to go.
  T(*lamb_square)
  (const T* var, const T* grad, const T* m, const T* v, int64_t n,
   const AdamParameters& parameters);
};

BRAID_DECLARE_LOOPS(UpdateLoops<float>)
BRAID_DECLARE_LOOPS(UpdateLoops<double>)

}  // namespace braid::simd
