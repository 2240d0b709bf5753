// Payload of shm links that is copied once: from the sender's memory into the receiver's, where the
// receiver's lies in its SharedHeap and the sender maps that. What cannot pass so, for the heap has
// not come yet or the memory lies elsewhere, passes through the ring of the link.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/landing_regions.h"
#include "comm/shm/shm_segment.h"
#include "comm/token_table.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/mutex.h"
#include "runtime/base/shared_heap.h"
#include "runtime/base/shared_memory.h"

namespace braid {

// What this process's peer may write, or read where it lies, by itself. Any thread.
class ShmGrants {
 public:
  // `own` is this side's, and outlives it, as `heap` does; null: nothing is granted. `peer_ended`:
  // the peer's process is known to have ended, and writes nothing any more.
  ShmGrants(const ShmSegment& own, SharedHeap* heap, std::function<bool()> peer_ended);

  // False: the memory is not in the heap, or the token's key has no place.
  bool Grant(uint64_t token, std::span<const std::byte> memory,
             ShmAccess access = ShmAccess::kWrite);
  // Whether the memory is where it can be granted.
  bool Has(std::span<const std::byte> memory) const;
  // When it returns, the peer does not write there, or not so that this process would see it: a
  // peer that was stopped in the middle of a copy is left with pages of its own. Nor does it read
  // what comes there later.
  void Revoke(uint64_t token);
  void RevokeAll();

 private:
  void Revoke(uint64_t token, std::span<const std::byte> memory);

  const ShmSegment& own_;
  SharedHeap* const heap_;
  const std::function<bool()> peer_ended_;
  Mutex mutex_;
  TokenTable<std::span<const std::byte>> granted_ BRAID_GUARDED_BY(mutex_);
};

// The peer's heap, and what it grants of it. What follows Map: any thread.
class ShmPeerHeap {
 public:
  // Errors as of SharedMemory::Map.
  absl::Status Map(Descriptor heap);
  bool is_mapped() const { return heap_.has_value(); }

  // Whether the payload is where it belongs; false: the peer grants no such write. `theirs` is what
  // the peer made. INVALID_ARGUMENT with both values: it grants what it does not have.
  absl::StatusOr<bool> Write(const ShmSegment& theirs, const LandingWrite& write,
                             std::span<const std::byte> payload) const;
  // As Link::ReadLent.
  bool Read(const ShmSegment& theirs, uint64_t token, uint64_t bytes, Link::LentReader read) const;
  // As Link::WriteLent.
  bool WriteLent(const ShmSegment& theirs, const LandingWrite& write,
                 std::span<const std::byte> payload) const;

 private:
  // Where that lies, of what the key grants; null: the peer does not grant that access, or not as
  // much. The key says that it is used meanwhile.
  absl::StatusOr<std::byte*> Find(ShmKey& key, const LandingWrite& range,
                                  absl::FunctionRef<bool(ShmAccess)> may) const;

  std::optional<SharedMemory> heap_;
};

}  // namespace braid
