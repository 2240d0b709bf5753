// The memory that one peer may write to: what a Link keeps of its Expose and Withdraw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"

namespace braid {

// A write as the peer asks for it.
struct LandingWrite {
  uint64_t token = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;

  bool operator==(const LandingWrite&) const = default;
};

// Any thread.
class LandingRegions {
 public:
  // As of Link.
  MemoryKey Expose(std::span<std::byte> memory);
  void Withdraw(const MemoryKey& key);

  // INVALID_ARGUMENT with both values if it is of no region, or leaves its own. `node`: whose they
  // are, for the words.
  absl::Status Check(const LandingWrite& write, uint16_t node) const;

  // Calls `fn` with the region, or with no bytes if it was withdrawn meanwhile, and returns what it
  // returns. Withdraw waits for it.
  template <typename Fn>
  auto WithRegion(uint64_t token, const Fn& fn) const {
    MutexLock lock(mutex_);
    const auto found = regions_.find(token);
    return fn(found == regions_.end() ? std::span<std::byte>() : found->second);
  }

 private:
  mutable Mutex mutex_;
  uint64_t last_token_ BRAID_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::span<std::byte>> regions_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
