// Loops of activations, functions of x and up to three numbers, and their gradients.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"
#include "runtime/kernels/functions/op_lists.h"

namespace braid::simd {

// The forward loop ignores dy, which is null.
template <class T>
using ActivationFn = void (*)(const T* x, const T* dy, T* out, int64_t n,
                              const ActivationParameters& parameters);

template <class T>
struct ActivationLoops {
  // In the order of ActivationOp.
  ActivationFn<T> activation[kActivationOps], activation_grad[kActivationOps];
};

BRAID_DECLARE_LOOPS(ActivationLoops<float>)
BRAID_DECLARE_LOOPS(ActivationLoops<double>)

}  // namespace braid::simd
