#include "comm/shm/shm_landing.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
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

void ShmGrants::Grant(uint64_t token, std::span<std::byte> memory) {
  if (heap_ == nullptr || memory.empty()) return;
  const std::optional<uint64_t> offset = heap_->OffsetOf(memory);
  if (!offset.has_value()) return;
  MutexLock lock(mutex_);
  ShmKey& key = own_.key(token);
  if (key.token.load() != 0 || key.is_written.load() != 0) return;  // another region has the place
  key.offset.store(*offset, std::memory_order_relaxed);
  key.bytes.store(memory.size(), std::memory_order_relaxed);
  key.token.store(token);
  granted_[token] = memory;
}

void ShmGrants::Revoke(uint64_t token) {
  MutexLock lock(mutex_);
  const auto granted = granted_.extract(token);
  if (!granted.empty()) Revoke(token, granted.mapped());
}

void ShmGrants::RevokeAll() {
  MutexLock lock(mutex_);
  for (const auto& [token, memory] : granted_) Revoke(token, memory);
  granted_.clear();
}

// The peer first says that it copies and then looks at the token; here it is the other way round,
// so not both can miss it.
void ShmGrants::Revoke(uint64_t token, std::span<std::byte> memory) {
  ShmKey& key = own_.key(token);
  key.token.store(0);
  if (key.is_written.load() == 0 || peer_ended_()) return;
  if (WaitForZero(key.is_written, kPatience, peer_ended_) || peer_ended_()) return;
  LOG(WARNING) << "a process that shares memory with this one stands still while it writes there; "
               << memory.size() << " bytes are not shared any more";
  heap_->Separate(memory);
}

absl::Status ShmPeerHeap::Map(Descriptor heap) {
  BRAID_ASSIGN_OR_RETURN(heap_, SharedMemory::Map(std::move(heap)));
  return absl::OkStatus();
}

absl::StatusOr<bool> ShmPeerHeap::Write(const ShmSegment& theirs, const LandingWrite& write,
                                        std::span<const std::byte> payload) {
  if (!heap_.has_value() || payload.empty() || write.token == 0) return false;
  ShmKey& key = theirs.key(write.token);
  if (key.token.load() != write.token) return false;
  key.is_written.store(1);
  const bool is_granted = key.token.load() == write.token;
  const uint64_t offset = key.offset.load(std::memory_order_relaxed);
  const uint64_t bytes = key.bytes.load(std::memory_order_relaxed);
  const bool is_there = offset <= heap_->bytes() && bytes <= heap_->bytes() - offset;
  const bool fits = write.offset <= bytes && payload.size() <= bytes - write.offset;
  if (!is_granted || !is_there || !fits) {
    key.is_written.store(0, std::memory_order_release);
    if (!is_granted || is_there) return false;
    return absl::InvalidArgumentError(
        absl::StrFormat("its key %d has %d bytes at %d of its shared memory, which has %d",
                        write.token, bytes, offset, heap_->bytes()));
  }
  std::byte* to = heap_->data() + offset + write.offset;
  // The rest of what is withdrawn meanwhile goes nowhere.
  while (!payload.empty() && key.token.load() == write.token) {
    const auto piece = payload.first(std::min<size_t>(payload.size(), kPieceBytes));
    StreamingCopy(to, piece.data(), piece.size());
    to += piece.size();
    payload = payload.subspan(piece.size());
  }
  key.is_written.store(0, std::memory_order_release);
  return true;
}

}  // namespace braid
