// The memory that one peer may write to or read: what a Link keeps of its Expose, Lend and
// Withdraw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "comm/token_table.h"
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

// The peer has sent what cannot be, as `status` says.
absl::Status WrongFrameOf(uint16_t peer, const absl::Status& status);

// Any thread.
class LandingRegions {
 public:
  // As of Link.
  MemoryKey Expose(std::span<std::byte> memory);
  // With a token of the transport's own, which no region of these has. As long as tokens grow,
  // those of withdrawn regions are told from those that were never given.
  void ExposeAs(uint64_t token, std::span<std::byte> memory);
  MemoryKey Lend(std::span<const std::byte> memory);
  MemoryKey LendForWriting(std::span<std::byte> memory);
  void Withdraw(const MemoryKey& key);

  // INVALID_ARGUMENT with both values if it is of no region, or leaves its own. One to a region
  // that was withdrawn is none of the peer's faults, who may not have known: it goes nowhere.
  // `node`: whose they are, for the words.
  absl::Status Check(const LandingWrite& write, uint16_t node) const;
  // Whether this token was given, and its memory has been withdrawn.
  bool IsWithdrawn(uint64_t token) const;

  // Of what was lent: `read` is called with its first `bytes`, and Withdraw waits for it. False:
  // there are not as many.
  bool ReadLent(uint64_t token, uint64_t bytes, Link::LentReader read) const;

  // As of Link; Withdraw waits for it.
  bool WriteLent(uint64_t token, uint64_t offset, std::span<const std::byte> payload) const;

  // Calls `fn` with the region, or with no bytes if it was withdrawn meanwhile, and returns what it
  // returns. Withdraw waits for it.
  template <typename Fn>
  auto WithRegion(uint64_t token, const Fn& fn) const {
    MutexLock lock(mutex_);
    const std::span<std::byte>* const found = regions_.Find(token);
    return fn(found == nullptr ? std::span<std::byte>() : *found);
  }

 private:
  bool IsGone(uint64_t token) const BRAID_REQUIRES(mutex_);

  mutable Mutex mutex_;
  uint64_t last_token_ BRAID_GUARDED_BY(mutex_) = 0;
  TokenTable<std::span<std::byte>> regions_ BRAID_GUARDED_BY(mutex_);
  struct Lent {
    std::span<const std::byte> memory;
    std::byte* writable = nullptr;  // the same memory, if it may be written
  };
  MemoryKey Add(const Lent& lent);
  TokenTable<Lent> lent_ BRAID_GUARDED_BY(mutex_){kFirstLent};
};

}  // namespace braid
