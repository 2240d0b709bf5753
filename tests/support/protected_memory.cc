#include "tests/support/protected_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace braid {
namespace {

// Of address space, for the arena and for the blocks each: far more than a test's plan takes.
constexpr uint64_t kReserved = uint64_t{8} << 30;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 64;

uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

ProtectedMemory::ProtectedMemory() {
  void* mapped =
      mmap(nullptr, 2 * kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(mapped != MAP_FAILED);
  base_ = static_cast<std::byte*>(mapped);
  key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

ProtectedMemory::~ProtectedMemory() {
  munmap(base_, 2 * kReserved);
  if (key_ >= 0) pkey_free(key_);
}

absl::StatusOr<std::span<std::byte>> ProtectedMemory::Take(uint64_t bytes) {
  const uint64_t size = std::max(RoundUp(bytes, kAlignment), kAlignment);
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [size](const auto& hole) { return hole.second >= size; });
  uint64_t at = blocks_end_;
  if (hole != holes_.end()) {
    at = hole->first;
    const uint64_t rest = hole->second - size;
    holes_.erase(hole);
    if (rest > 0) holes_[at + size] = rest;
  } else {
    if (size > kReserved - blocks_end_) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("a lagging device has no %d bytes left, of %d in all", bytes, kReserved));
    }
    blocks_end_ += size;
    Map();
  }
  return std::span(base_ + kReserved + at, bytes);
}

void ProtectedMemory::GiveBack(std::span<std::byte> block) {
  const auto at = static_cast<uint64_t>(block.data() - base_) - kReserved;
  holes_[at] = std::max(RoundUp(block.size(), kAlignment), kAlignment);
}

absl::Status ProtectedMemory::GrowArena(uint64_t bytes) {
  if (bytes > kReserved) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a lagging device's arena needs %d bytes by plan and has %d", bytes, kReserved));
  }
  arena_bytes_ = std::max(arena_bytes_, bytes);
  Map();
  return absl::OkStatus();
}

void ProtectedMemory::Open() {
  is_open_ = true;
  if (key_ < 0) return Protect(PROT_READ | PROT_WRITE);
  PCHECK(pkey_set(key_, 0) == 0);
}

void ProtectedMemory::Close() {
  is_open_ = false;
  if (key_ < 0) return Protect(PROT_NONE);
  PCHECK(pkey_set(key_, PKEY_DISABLE_ACCESS) == 0);
}

void ProtectedMemory::Map() {
  if (key_ >= 0 || is_open_) Protect(PROT_READ | PROT_WRITE);
}

void ProtectedMemory::Protect(int how) {
  for (const auto& [at, bytes] :
       {std::pair(uint64_t{0}, arena_bytes_), std::pair(kReserved, blocks_end_)}) {
    if (bytes == 0) continue;
    const uint64_t size = RoundUp(bytes, kPage);
    const int failed =
        key_ < 0 ? mprotect(base_ + at, size, how) : pkey_mprotect(base_ + at, size, how, key_);
    PCHECK(failed == 0);
  }
}

}  // namespace braid
