#include "runtime/kernels/cpu/cast_loops.h"

#include "runtime/base/independent.h"
#include "runtime/kernels/cpu/simd/define_loops.h"

namespace braid::simd {
namespace BRAID_ISA {

template <class T>
inline constexpr bool kIsReal = false;
template <>
inline constexpr bool kIsReal<float> = true;
template <>
inline constexpr bool kIsReal<double> = true;

// Of whole types: the ends of their ranges.
template <class T>
inline constexpr T kLowest = T(-1) < T(0) ? T(T(1) << (8 * sizeof(T) - 1)) : T(0);
template <class T>
inline constexpr T kHighest = T(~kLowest<T>);

template <class To, class From>
To Converted(From from) {
  if constexpr (kIsReal<From> && !kIsReal<To>) {
    // The upper end may be no From: then it is the next number above.
    constexpr From kLow = static_cast<From>(kLowest<To>), kHigh = static_cast<From>(kHighest<To>);
    const From above = from > kLow ? from : kLow;  // of NaN kLow
    const bool is_high = above >= kHigh;
    const From within = is_high ? From(0) : above;
    To to;
    if constexpr (sizeof(To) < sizeof(int32_t)) {
      to = static_cast<To>(static_cast<int32_t>(within));
    } else {
      to = static_cast<To>(within);
    }
    to = is_high ? kHighest<To> : to;
    return from == from ? to : To(0);
  } else {
    return static_cast<To>(from);
  }
}

template <class From, class To>
void CastLoop(const void* x_data, void* out_data, int64_t n) {
  const From* x = static_cast<const From*>(x_data);
  To* out = static_cast<To*>(out_data);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Converted<To>(x[i]);
}

// In the order of CastType.
#define BRAID_CASTS_OF(From)                                                     \
  {                                                                              \
    CastLoop<From, float>, CastLoop<From, double>, CastLoop<From, int32_t>,      \
        CastLoop<From, int64_t>, CastLoop<From, uint8_t>, CastLoop<From, int8_t> \
  }

constexpr CastLoops kCastLoops = {.cast = {BRAID_CASTS_OF(float), BRAID_CASTS_OF(double),
                                           BRAID_CASTS_OF(int32_t), BRAID_CASTS_OF(int64_t),
                                           BRAID_CASTS_OF(uint8_t), BRAID_CASTS_OF(int8_t)}};

}  // namespace BRAID_ISA

BRAID_DEFINE_LOOPS(CastLoops, BRAID_ISA::kCastLoops)

}  // namespace braid::simd
