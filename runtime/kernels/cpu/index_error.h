// Integer operands that pick elements: how they are read and what is said when one is out of range.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/kernel.h"

namespace braid::cpu {

inline bool IsIndexType(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

// Reads i32 or i64.
struct IndexReader {
  const void* data;
  bool is_i64;
  int64_t operator[](int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// "gather 'embedding': index 70 at position 3 is outside [0, 65)".
absl::Status IndexOutOfRange(const KernelSpec& spec, const char* what, int64_t value,
                             int64_t position, int64_t size);

}  // namespace braid::cpu
