// The memory that one peer's device may write to: what an rdma link keeps of its Expose and
// Withdraw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/landing_regions.h"
#include "comm/rdma/rdma_device.h"
#include "comm/token_table.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"

namespace braid {

// Any thread.
class RdmaLanding {
 public:
  explicit RdmaLanding(std::shared_ptr<RdmaDevice> device) : device_(std::move(device)) {}

  // As of Link; the device knows just this memory by the key. Errors as of RdmaDevice::Register.
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory);
  void Withdraw(const MemoryKey& key);
  void WithdrawAll();

  // As of LandingRegions.
  absl::Status Check(const LandingWrite& write, uint16_t node) const {
    return regions_.Check(write, node);
  }
  bool IsWithdrawn(uint64_t token) const { return regions_.IsWithdrawn(token); }

 private:
  const std::shared_ptr<RdmaDevice> device_;  // shared with all links of the device
  LandingRegions regions_;
  Mutex mutex_;
  uint64_t last_number_ BRAID_GUARDED_BY(mutex_) = 0;
  TokenTable<RdmaRegion> known_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid
