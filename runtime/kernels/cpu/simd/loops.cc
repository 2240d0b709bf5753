#include "runtime/kernels/cpu/simd/loops.h"

namespace braid::simd {

// Constant data, one definition per compilation of loops_for_isa.cc.
namespace baseline {
extern const Loops kLoops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
#endif

LoopsList RunnableLoops() {
  LoopsList list = {{&baseline::kLoops, nullptr, nullptr}, 1};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    list.tables[list.size++] = &avx2::kLoops;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      list.tables[list.size++] = &avx512::kLoops;
    }
  }
#endif
  return list;
}

const Loops& BestLoops() {
  const LoopsList list = RunnableLoops();
  return *list.tables[list.size - 1];
}

}  // namespace braid::simd
