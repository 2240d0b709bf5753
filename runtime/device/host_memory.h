// The memory of this machine, as any program has it: what CPU devices, arrays and tools lend from.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/memory.h"

namespace braid {

// Bytes that this machine has, used or not.
uint64_t SystemMemory();

// An AllocateMemory.
absl::StatusOr<Memory> AllocateHostMemory(uint64_t bytes);

}  // namespace braid
