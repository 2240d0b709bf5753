// Dropout.
#include "runtime/kernels/cpu/random_loops.h"

#include "runtime/kernels/cpu/simd/define_loops.h"
#include "runtime/kernels/functions/element_ops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
void DropoutLoop(const T* x, const uint32_t* words, T* out, int64_t n, float rate, T scale) {
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    // As UniformFromWord of runtime/base/philox.h; below 2^24, so that int32 converts it.
    const float uniform = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
    out[i] = uniform >= rate ? x[i] * scale : T{0};
  }
}

template <class T>
constexpr RandomLoops<T> kRandomLoops = {.dropout = DropoutLoop<T>};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(RandomLoops<float>, BRAID_ISA::kRandomLoops<float>)
BRAID_DEFINE_LOOPS(RandomLoops<double>, BRAID_ISA::kRandomLoops<double>)

}  // namespace braid::simd
