// Operands that say where something goes.
#pragma once

#include <cstdint>

#include "runtime/kernels/cuda/device_code.h"

namespace braid::cuda {

__device__ __forceinline__ int64_t ReadPosition(const void* positions, bool is_i64, int64_t i) {
  return is_i64 ? static_cast<const int64_t*>(positions)[i]
                : static_cast<const int32_t*>(positions)[i];
}

}  // namespace braid::cuda
