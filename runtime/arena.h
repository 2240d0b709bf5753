// The activation memory of one device. All jobs of a session share it, since they run one at a
// time: it is as large as the largest plan says, and it never moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace braid {

// Bytes of this machine's memory.
uint64_t SystemMemory();

// Address space is reserved once; memory is taken as plans need it. Owned by the node.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes at least `bytes` usable. RESOURCE_EXHAUSTED with both values if the system refuses.
  absl::Status Grow(uint64_t bytes);

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t reserved_;
  void* mapped_ = nullptr;     // what was reserved
  std::byte* base_ = nullptr;  // in it, at the start of a huge page
  uint64_t bytes_ = 0;
};

}  // namespace braid
