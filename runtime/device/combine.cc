#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/base/independent.h"
#include "runtime/device/box.h"

// This file is compiled so that its loops become vector instructions.
namespace braid {
namespace {

template <typename T>
struct Sum {
  static T Of(T a, T b) { return a + b; }
};
template <typename T>
struct Max {
  static T Of(T a, T b) { return a > b || a != a ? a : b; }
};
template <typename T>
struct Min {
  static T Of(T a, T b) { return a < b || a != a ? a : b; }
};

template <typename T, template <typename> class F>
void Combine(void* dst, const void* a, const void* b, int64_t n) {
  T* d = static_cast<T*>(dst);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) d[i] = F<T>::Of(x[i], y[i]);
}

template <typename Half, template <typename> class F>
void CombineHalf(void* dst, const void* a, const void* b, int64_t n) {
  Half* d = static_cast<Half*>(dst);
  const Half* x = static_cast<const Half*>(a);
  const Half* y = static_cast<const Half*>(b);
  BRAID_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    d[i] = Half(F<float>::Of(static_cast<float>(x[i]), static_cast<float>(y[i])));
  }
}

template <template <typename> class F>
CombineFn Select(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Combine<float, F>;
    case DType::kF64:
      return Combine<double, F>;
    case DType::kBF16:
      return CombineHalf<BFloat16, F>;
    case DType::kF16:
      return CombineHalf<Float16, F>;
    case DType::kI32:
      return Combine<int32_t, F>;
    case DType::kI64:
      return Combine<int64_t, F>;
    case DType::kU8:
      return Combine<uint8_t, F>;
    case DType::kI8:
      return Combine<int8_t, F>;
    case DType::kI16:
      return Combine<int16_t, F>;
    case DType::kU16:
      return Combine<uint16_t, F>;
    case DType::kU32:
      return Combine<uint32_t, F>;
    case DType::kU64:
      return Combine<uint64_t, F>;
    // Of addends that are copies beside zeros; their sum never carries. Coded numbers likewise.
    default:
      return Combine<uint8_t, F>;
  }
}

}  // namespace

CombineFn CombineFunction(DType dtype, Sbp::Kind kind) {
  switch (kind) {
    case Sbp::Kind::kPartialSum:
      return Select<Sum>(dtype);
    case Sbp::Kind::kPartialMax:
      return Select<Max>(dtype);
    case Sbp::Kind::kPartialMin:
      return Select<Min>(dtype);
    case Sbp::Kind::kSplit:
    case Sbp::Kind::kBroadcast:
    case Sbp::Kind::kMirrored:
      return nullptr;
  }
  return nullptr;
}

}  // namespace braid
