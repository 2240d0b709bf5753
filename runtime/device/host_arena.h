// An arena in host memory. Address space is reserved once, when it is first used; memory is taken
// as plans need it, so what lies there never moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace braid {

class HostArena {
 public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Makes at least `bytes` usable. RESOURCE_EXHAUSTED with both values if the system refuses.
  absl::Status Grow(uint64_t bytes);

  std::span<std::byte> bytes() const { return {base_, size_}; }

 private:
  void Reserve();

  uint64_t reserved_ = 0;
  void* mapped_ = nullptr;     // what was reserved
  std::byte* base_ = nullptr;  // in it, at the start of a huge page
  uint64_t size_ = 0;
};

}  // namespace braid
