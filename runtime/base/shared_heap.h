// Memory of this process that other processes of the machine can map: where what they send may land
// without a copy between. All of it is one SharedMemory, so a peer maps it once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/memory.h"
#include "runtime/base/mutex.h"
#include "runtime/base/shared_memory.h"

namespace braid {

// Any thread.
class SharedHeap {
 public:
  // At most `bytes` can be lent; they take address space from now on, and memory once they are
  // lent. Errors as of SharedMemory::Reserve.
  static absl::StatusOr<std::unique_ptr<SharedHeap>> Make(uint64_t bytes);
  explicit SharedHeap(SharedMemory memory) : memory_(std::move(memory)) {}

  // Nobody maps it after all: from now on nothing is lent or reserved, and whoever asks takes
  // memory of its own.
  void Retire();

  // An AllocateMemory. Whole pages: no block lies in the page of another.
  absl::StatusOr<Memory> Allocate(uint64_t bytes);

  // Address space for an arena, from a large page's start on, as long as the heap is there; memory
  // once it is filled. RESOURCE_EXHAUSTED if there is no room.
  absl::StatusOr<std::span<std::byte>> Reserve(uint64_t bytes);
  // Of what was reserved; in large pages where the system has them.
  absl::Status Fill(std::span<std::byte> reserved);

  // Where it lies in the mapping of a peer; none if peers do not have it.
  std::optional<uint64_t> OffsetOf(std::span<const std::byte> memory) const;
  // The run, filled in one call, that has all of this memory in it; empty if none has. A run stays
  // filled and where it is as long as the heap is there, also after its blocks are given back.
  std::span<std::byte> RunOf(std::span<const std::byte> memory) const;
  // Takes it from the peers, one of which may store there still and cannot be told to stop. What it
  // holds stays. It is never lent again.
  void Separate(std::span<const std::byte> memory);

  int descriptor() const { return memory_.descriptor(); }

 private:
  void GiveBack(std::span<std::byte> block);
  void Filled(uint64_t offset, uint64_t bytes) BRAID_REQUIRES(mutex_);
  uint64_t OffsetIn(std::span<const std::byte> memory) const;
  bool IsSeparate(uint64_t offset, uint64_t bytes) const BRAID_REQUIRES(mutex_);

  SharedMemory memory_;
  mutable Mutex mutex_;
  bool is_retired_ BRAID_GUARDED_BY(mutex_) = false;
  uint64_t end_ BRAID_GUARDED_BY(mutex_) = 0;                   // of what was lent or reserved
  std::map<uint64_t, uint64_t> free_ BRAID_GUARDED_BY(mutex_);  // of that: bytes at an offset
  std::map<uint64_t, uint64_t> runs_ BRAID_GUARDED_BY(mutex_);  // what was filled, likewise
  std::set<uint64_t> separate_ BRAID_GUARDED_BY(mutex_);        // pages, never free again
};

}  // namespace braid
