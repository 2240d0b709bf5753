#include "runtime/kernels/cpu/simd/isa.h"

namespace braid::simd {

const char* NameOf(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Isa BestIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return has_avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }
#endif
  return Isa::kBaseline;
}

}  // namespace braid::simd
