#include "comm/rdma/rdma_landing.h"

#include <optional>

#include "runtime/base/status.h"

namespace braid {

// A token is the device's key, and a number above it, for keys are used again. Without any bytes
// there is nothing for a device to write.
absl::StatusOr<MemoryKey> RdmaLanding::Expose(std::span<std::byte> memory) {
  RdmaRegion region;
  uint32_t remote_key = 0;
  if (!memory.empty()) {
    BRAID_ASSIGN_OR_RETURN(region, device_->Register(memory, RdmaAccess::kRemote));
    remote_key = region.remote_key();
  }
  MutexLock lock(mutex_);
  const uint64_t token = ++last_number_ << 32 | remote_key;
  regions_.ExposeAs(token, memory);
  known_.Add(token, std::move(region));
  return MemoryKey{
      .token = token, .base = reinterpret_cast<uintptr_t>(memory.data()), .bytes = memory.size()};
}

void RdmaLanding::Withdraw(const MemoryKey& key) {
  std::optional<RdmaRegion> region;  // is taken back from the device without the lock
  MutexLock lock(mutex_);
  region = known_.Take(key.token);
  regions_.Withdraw(key);
}

void RdmaLanding::WithdrawAll() {
  TokenTable<RdmaRegion> regions;
  MutexLock lock(mutex_);
  std::swap(regions, known_);
}

}  // namespace braid
