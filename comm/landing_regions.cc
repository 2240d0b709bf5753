#include "comm/landing_regions.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_format.h"

namespace braid {

absl::Status WrongFrameOf(uint16_t peer, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrFormat("wrong frame from node %d: %s", peer,
                                                     std::string(status.message())));
}

MemoryKey LandingRegions::Expose(std::span<std::byte> memory) {
  MutexLock lock(mutex_);
  const uint64_t token = ++last_token_;
  regions_.Add(token, memory);
  return {.token = token, .base = 0, .bytes = memory.size()};
}

void LandingRegions::ExposeAs(uint64_t token, std::span<std::byte> memory) {
  MutexLock lock(mutex_);
  last_token_ = std::max(last_token_, token);
  regions_.Add(token, memory);
}

MemoryKey LandingRegions::Lend(std::span<const std::byte> memory) {
  return Add({.memory = memory});
}

MemoryKey LandingRegions::LendForWriting(std::span<std::byte> memory) {
  return Add({.memory = memory, .writable = memory.data()});
}

MemoryKey LandingRegions::Add(const Lent& lent) {
  MutexLock lock(mutex_);
  const uint64_t token = ++last_token_;
  lent_.Add(token, lent);
  return {.token = token, .base = 0, .bytes = lent.memory.size()};
}

void LandingRegions::Withdraw(const MemoryKey& key) {
  MutexLock lock(mutex_);
  if (!regions_.Take(key.token).has_value()) lent_.Take(key.token);
}

bool LandingRegions::ReadLent(uint64_t token, uint64_t bytes, Link::LentReader read) const {
  MutexLock lock(mutex_);
  const Lent* const found = lent_.Find(token);
  if (found == nullptr || bytes > found->memory.size()) return false;
  read(found->memory.first(bytes));
  return true;
}

bool LandingRegions::WriteLent(uint64_t token, uint64_t offset,
                               std::span<const std::byte> payload) const {
  MutexLock lock(mutex_);
  const Lent* const found = lent_.Find(token);
  if (found == nullptr || found->writable == nullptr) return false;
  const uint64_t size = found->memory.size();
  if (offset > size || payload.size() > size - offset) return false;
  if (!payload.empty()) std::memcpy(found->writable + offset, payload.data(), payload.size());
  return true;
}

bool LandingRegions::IsWithdrawn(uint64_t token) const {
  MutexLock lock(mutex_);
  return IsGone(token);
}

bool LandingRegions::IsGone(uint64_t token) const {
  return token > 0 && token <= last_token_ && regions_.Find(token) == nullptr &&
         lent_.Find(token) == nullptr;
}

absl::Status LandingRegions::Check(const LandingWrite& write, uint16_t node) const {
  MutexLock lock(mutex_);
  const std::span<std::byte>* const found = regions_.Find(write.token);
  if (found == nullptr) {
    if (IsGone(write.token)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("key %d names none of the %d regions that node %d exposes to it",
                        write.token, regions_.size(), node));
  }
  const uint64_t size = found->size();
  if (write.offset > size || write.bytes > size - write.offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it writes %d bytes at offset %d of key %d, which has %d bytes",
                        write.bytes, write.offset, write.token, size));
  }
  return absl::OkStatus();
}

}  // namespace braid
