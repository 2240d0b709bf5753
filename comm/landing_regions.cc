#include "comm/landing_regions.h"

#include "absl/strings/str_format.h"

namespace braid {

MemoryKey LandingRegions::Expose(std::span<std::byte> memory) {
  MutexLock lock(mutex_);
  const uint64_t token = ++last_token_;
  regions_[token] = memory;
  return {.token = token, .base = 0, .bytes = memory.size()};
}

void LandingRegions::Withdraw(const MemoryKey& key) {
  MutexLock lock(mutex_);
  regions_.erase(key.token);
}

absl::Status LandingRegions::Check(const LandingWrite& write, uint16_t node) const {
  MutexLock lock(mutex_);
  const auto found = regions_.find(write.token);
  if (found == regions_.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("key %d names none of the %d regions that node %d exposes to it",
                        write.token, regions_.size(), node));
  }
  const uint64_t size = found->second.size();
  if (write.offset > size || write.bytes > size - write.offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it writes %d bytes at offset %d of key %d, which has %d bytes",
                        write.bytes, write.offset, write.token, size));
  }
  return absl::OkStatus();
}

}  // namespace braid
