// A block of memory with one holder: what devices lend to arenas, variables, kernels and
// collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace braid {

// Of memory that is looked up here and there, or gone through in each step: with small pages most
// accesses wait for the page's address, too. Of x86-64, and of arm64 with small pages; where they
// are larger, the system takes small ones.
inline constexpr uint64_t kLargePage = 2 << 20;

// Which of the memories that a device can lend.
enum class MemoryKind : uint8_t {
  kOwn,     // the device's, where its kernels work
  kPinned,  // the host's, which the device copies from and to by itself
  kHost,    // the host's, as any program has it
};

// Given back when the holder lets go. What lent it outlives it.
class Memory {
 public:
  using GiveBack = std::function<void(std::span<std::byte>)>;

  Memory() = default;  // no bytes
  Memory(MemoryKind kind, std::span<std::byte> bytes, GiveBack give_back)
      : kind_(kind), bytes_(bytes), give_back_(std::move(give_back)) {}
  ~Memory() { Reset(); }
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    kind_ = other.kind_;
    bytes_ = std::exchange(other.bytes_, {});
    give_back_ = std::exchange(other.give_back_, nullptr);
    return *this;
  }

  MemoryKind kind() const { return kind_; }
  std::byte* data() const { return bytes_.data(); }
  uint64_t size() const { return bytes_.size(); }

  void Reset() {
    if (give_back_) std::exchange(give_back_, nullptr)(std::exchange(bytes_, {}));
  }

 private:
  MemoryKind kind_ = MemoryKind::kHost;
  std::span<std::byte> bytes_;
  GiveBack give_back_;
};

// Lends this many bytes, with anything in them, aligned to a cache line at least.
// RESOURCE_EXHAUSTED with the lender, what was asked for and what there is.
using AllocateMemory = std::function<absl::StatusOr<Memory>(uint64_t bytes)>;

}  // namespace braid
