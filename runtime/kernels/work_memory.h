// Memory that the kernels of a thread take turns in: each has it while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/memory.h"
#include "runtime/device/host_memory.h"

namespace braid {

class WorkMemory {
 public:
  // Of kernels that are made without a device: the host's.
  explicit WorkMemory(AllocateMemory allocate = AllocateHostMemory)
      : allocate_(std::move(allocate)) {}

  // At least as much from now on; an error is the allocator's, and then there is none. When a
  // kernel is made: none may be running.
  absl::Status Reserve(int64_t bytes);

  // Aligned to a cache line, with anything in it. Null as long as nothing was reserved.
  std::byte* data() const { return memory_.data(); }

 private:
  AllocateMemory allocate_;
  Memory memory_;
};

}  // namespace braid
