// Integer operands that pick elements: how they are read and what is said when one is out of range.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/spec_views.h"

namespace braid::cpu {

// Rows of a large table lie anywhere in memory: so many ahead of the one that is read, they are
// asked for.
inline constexpr int64_t kRowsAhead = 16;

// Reads i32 or i64.
struct IndexReader {
  const void* data;
  bool is_i64;
  int64_t operator[](int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Counts from the end if it is negative; -1 if there is no such element of `size`.
inline int64_t FromStart(int64_t index, int64_t size) {
  const int64_t at = index < 0 ? index + size : index;
  return at < size ? std::max<int64_t>(at, -1) : -1;
}

// The place in the whole tensor, dense, of the local element `position`.
int64_t LogicalPosition(const OperandSpec& operand, int64_t position, int64_t micro_batch);

// An index outside [low, high).
struct WrongIndex {
  const char* what;
  int64_t value, position, low, high;
};
absl::Status IndexOutOfRange(const KernelSpec& spec, const WrongIndex& wrong);

// "gather 'embedding': index 70 at position 3 is outside [0, 65)".
absl::Status IndexOutOfRange(const KernelSpec& spec, const char* what, int64_t value,
                             int64_t position, int64_t size);

}  // namespace braid::cpu
