#include "comm/shm/shm_landing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "comm/token_table.h"
#include "glog/logging.h"
#include "runtime/base/status.h"
#include "runtime/base/streaming_copy.h"

namespace braid {
namespace {

// A peer copies so much before it looks whether it still may: tens of microseconds.
constexpr uint64_t kPieceBytes = 256 << 10;
// Longer than a copy takes on a machine that has much else to do.
constexpr Nanoseconds kPatience = kSecond;

}  // namespace

ShmGrants::ShmGrants(const ShmSegment& own, SharedHeap* heap, std::function<bool()> peer_ended)
    : own_(own), heap_(heap), peer_ended_(std::move(peer_ended)) {}

bool ShmGrants::Grant(uint64_t token, std::span<const std::byte> memory, ShmAccess access) {
  if (heap_ == nullptr || memory.empty()) return false;
  const std::optional<uint64_t> offset = heap_->OffsetOf(memory);
  if (!offset.has_value()) return false;
  MutexLock lock(mutex_);
  ShmKey& key = own_.key(token);
  if (key.token.load() != 0 || key.is_used.load() != 0) return false;  // another has the place
  key.offset.store(*offset, std::memory_order_relaxed);
  key.bytes.store(memory.size(), std::memory_order_relaxed);
  key.access.store(access, std::memory_order_relaxed);
  key.token.store(token);
  // What is lent comes and goes as a job runs, on top of the regions.
  if (access == ShmAccess::kWrite) granted_.MakeRoom(kFirstLent);
  granted_.Add(token, memory);
  return true;
}

bool ShmGrants::Has(std::span<const std::byte> memory) const {
  return heap_ != nullptr && !memory.empty() && heap_->OffsetOf(memory).has_value();
}

void ShmGrants::Revoke(uint64_t token) {
  MutexLock lock(mutex_);
  const auto granted = granted_.Take(token);
  if (granted.has_value()) Revoke(token, *granted);
}

void ShmGrants::RevokeAll() {
  MutexLock lock(mutex_);
  for (const auto& [token, memory] : granted_) Revoke(token, memory);
  granted_.clear();
}

// The peer first says that it uses the memory and then looks at the token; here it is the other way
// round, so not both can miss it.
void ShmGrants::Revoke(uint64_t token, std::span<const std::byte> memory) {
  ShmKey& key = own_.key(token);
  key.token.store(0);
  if (key.is_used.load() == 0 || peer_ended_()) return;
  if (WaitForZero(key.is_used, kPatience, peer_ended_) || peer_ended_()) return;
  LOG(WARNING) << "a process that shares memory with this one stands still while it uses some; "
               << memory.size() << " bytes are not shared any more";
  heap_->Separate(memory);
}

absl::Status ShmPeerHeap::Map(Descriptor heap) {
  BRAID_ASSIGN_OR_RETURN(heap_, SharedMemory::Map(std::move(heap)));
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> ShmPeerHeap::Find(ShmKey& key, const LandingWrite& range,
                                             absl::FunctionRef<bool(ShmAccess)> may) const {
  key.is_used.fetch_add(1);
  if (key.token.load() != range.token) return nullptr;
  if (!may(key.access.load(std::memory_order_relaxed))) return nullptr;
  const uint64_t offset = key.offset.load(std::memory_order_relaxed);
  const uint64_t bytes = key.bytes.load(std::memory_order_relaxed);
  if (offset > heap_->bytes() || bytes > heap_->bytes() - offset) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its key %d has %d bytes at %d of its shared memory, which has %d",
                        range.token, bytes, offset, heap_->bytes()));
  }
  if (range.offset > bytes || range.bytes > bytes - range.offset) return nullptr;
  return heap_->data() + offset + range.offset;
}

absl::StatusOr<bool> ShmPeerHeap::Write(const ShmSegment& theirs, const LandingWrite& write,
                                        std::span<const std::byte> payload) const {
  if (!heap_.has_value() || payload.empty() || write.token == 0) return false;
  ShmKey& key = theirs.key(write.token);
  if (key.token.load() != write.token) return false;
  const absl::StatusOr<std::byte*> found =
      Find(key, write, [](ShmAccess access) { return access == ShmAccess::kWrite; });
  const absl::Cleanup end = [&key] { key.is_used.fetch_sub(1, std::memory_order_release); };
  if (!found.ok()) return found.status();
  if (*found == nullptr) return false;
  std::byte* to = *found;
  // The rest of what is withdrawn meanwhile goes nowhere.
  while (!payload.empty() && key.token.load() == write.token) {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kPieceBytes));
    StreamingCopy(to, piece.data(), piece.size());
    to += piece.size();
    payload = payload.subspan(piece.size());
  }
  return true;
}

bool ShmPeerHeap::Read(const ShmSegment& theirs, uint64_t token, uint64_t bytes,
                       Link::LentReader read) const {
  if (!heap_.has_value() || token == 0) return false;
  ShmKey& key = theirs.key(token);
  if (key.token.load() != token) return false;
  const absl::StatusOr<std::byte*> found =
      Find(key, {.token = token, .bytes = bytes},
           [](ShmAccess access) { return access != ShmAccess::kWrite; });
  const absl::Cleanup end = [&key] { key.is_used.fetch_sub(1, std::memory_order_release); };
  if (!found.ok() || *found == nullptr) return false;
  read(std::span<const std::byte>(*found, bytes));
  return true;
}

// In small pieces of what this core has just read: plain stores are cheaper there.
bool ShmPeerHeap::WriteLent(const ShmSegment& theirs, const LandingWrite& write,
                            std::span<const std::byte> payload) const {
  if (!heap_.has_value() || write.token == 0) return false;
  ShmKey& key = theirs.key(write.token);
  if (key.token.load() != write.token) return false;
  const absl::StatusOr<std::byte*> found =
      Find(key, write, [](ShmAccess access) { return access == ShmAccess::kBoth; });
  const absl::Cleanup end = [&key] { key.is_used.fetch_sub(1, std::memory_order_release); };
  if (!found.ok() || *found == nullptr) return false;
  if (!payload.empty()) std::memcpy(*found, payload.data(), payload.size());
  return true;
}

}  // namespace braid
