// Loops of activations, functions of x and up to three numbers, and their gradients.
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

// clang-format off
// Functions of x and up to three numbers, each with its gradient: activation_loops.cc says what.
#define BRAID_ACTIVATIONS(X)                                                                 \
  X(Silu) X(Mish) X(Elu) X(LeakyRelu) X(HardSigmoid) X(HardSwish) X(Clip) X(Softplus)        \
  X(LogSigmoid) X(Softsign) X(ThresholdedRelu) X(Shrink) X(Huber)
// clang-format on

#define BRAID_ENUMERATOR(name) k##name,
enum class ActivationOp : int { BRAID_ACTIVATIONS(BRAID_ENUMERATOR) kCount };
#undef BRAID_ENUMERATOR
inline constexpr int kActivationOps = static_cast<int>(ActivationOp::kCount);

struct ActivationParameters {
  double a, b, c;
};
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
