// Kernels for every type of numbers, integers too.
#pragma once

#include <memory>
#include <type_traits>

#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {

// Calls make(spec, ElementType<T>) for the T (float, double, int32_t, int64_t, uint8_t) of the
// first output.
template <class Make>
KernelFactory ForNumbers(Make make) {
  return [make](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    switch (spec.outputs[0].dtype) {
      case DType::kF32:
        return make(spec, ElementType<float>());
      case DType::kF64:
        return make(spec, ElementType<double>());
      case DType::kI32:
        return make(spec, ElementType<int32_t>());
      case DType::kI64:
        return make(spec, ElementType<int64_t>());
      case DType::kU8:
        return make(spec, ElementType<uint8_t>());
      default:
        return UnsupportedTypes(spec);
    }
  };
}

// a + b; integers wrap around.
template <class T>
T AddWrapping(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

}  // namespace braid::cpu
