// Rotations of pairs.
#include "runtime/kernels/cpu/rotary_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void RotatePairsLoop(const T* x, const T* cos, const T* sin, T* y, int64_t pairs) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cos[i] - b * sin[i];
    y[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

template <class T>
void RotateHalvesLoop(const T* x, const T* cos, const T* sin, T* y, int64_t pairs) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = x[i], b = x[pairs + i];
    y[i] = a * cos[i] - b * sin[i];
    y[pairs + i] = b * cos[i] + a * sin[i];
  }
}

template <class T>
constexpr RotaryLoops<T> kRotaryLoops = {.rotate_pairs = RotatePairsLoop<T>,
                                         .rotate_halves = RotateHalvesLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(RotaryLoops<float>, BRAID_ISA::kRotaryLoops<float>)
BRAID_DEFINE_LOOPS(RotaryLoops<double>, BRAID_ISA::kRotaryLoops<double>)

}  // namespace braid::simd
