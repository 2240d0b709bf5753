// Activations and their gradients, functions of x and of parameters p.
#include "runtime/kernels/cpu/activation_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/activation_ops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class Op, class T>
void ActivationLoop(const T* x, const T* /*dy*/, T* out, int64_t n,
                    const ActivationParameters& parameters) {
  const Constants<T> p = ConstantsOf<T>(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Op::F(x[i], p);
}

template <class Op, class T>
void ActivationGradLoop(const T* x, const T* dy, T* out, int64_t n,
                        const ActivationParameters& parameters) {
  const Constants<T> p = ConstantsOf<T>(parameters);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = dy[i] * Op::D(x[i], p);
}

#define BRAID_ACTIVATION(name, Op) ActivationLoop<Op, T>,
#define BRAID_ACTIVATION_GRAD(name, Op) ActivationGradLoop<Op, T>,

template <class T>
constexpr ActivationLoops<T> kActivationLoops = {
    .activation = {BRAID_ACTIVATIONS(BRAID_ACTIVATION)},
    .activation_grad = {BRAID_ACTIVATIONS(BRAID_ACTIVATION_GRAD)}};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(ActivationLoops<float>, BRAID_ISA::kActivationLoops<float>)
BRAID_DEFINE_LOOPS(ActivationLoops<double>, BRAID_ISA::kActivationLoops<double>)

}  // namespace braid::simd
