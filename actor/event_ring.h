// The last events of an ActorThread, for the time after a failure. Fixed size; the thread writes
// without locks, and anyone may read at any time, also when the thread is stuck. What an act tells
// others follows from its number, so an act that ends inside its start is one event.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/reactor.h"

namespace braid {

struct ActorEvent {
  enum class Kind : uint8_t {
    kAct,     // act `piece` began; it ended at once unless kGoesOn of the actor follows
    kGoesOn,  // act `piece` did not end inside its start
    kEnd,     // act `piece` ended; after kGoesOn, or when acts are timed
    kReady,   // came from another thread or node for input `port`
    kAck,     // came from another thread or node for output `port`
  };
  Kind kind = Kind::kAct;
  uint32_t actor = 0;  // its place in the thread
  uint32_t port = 0;
  uint32_t slot = 0;
  int64_t piece = 0;
  Nanoseconds time = 0;  // of the thread's clock, which stands between its looks at the time
};

// 16 bytes an event. What does not fit is cut: time is in units of 1024 ns, `actor` has 21 bits,
// `port` 16, `slot` 12, `piece` 36.
class EventRing {
 public:
  static constexpr size_t kSize = 1024;

  // The parts of an event's first word that are worth being made once.
  static uint64_t TimeWord(Nanoseconds time) {
    return static_cast<uint64_t>(time) >> kTimeUnitBits << kTimeShift;
  }
  static uint64_t KindWord(ActorEvent::Kind kind, uint32_t actor) {
    return static_cast<uint64_t>(kind) << kKindShift | (actor & kActorMask);
  }

  // The owner's thread.
  void Record(const ActorEvent& event) {
    Record(TimeWord(event.time) | KindWord(event.kind, event.actor), event.piece,
           (event.slot & kSlotMask) << kSlotShift | (event.port & kPortMask));
  }
  // An event of an act, which has neither slot nor port.
  void Record(uint64_t first_word, int64_t piece, uint64_t slot_and_port = 0) {
    const uint64_t count = count_.load(std::memory_order_relaxed);
    std::atomic<uint64_t>* const words = &words_[2 * (count % kSize)];
    // A reader that sees a word of this event sees `count`, too.
    std::atomic_thread_fence(std::memory_order_release);
    words[0].store(first_word, std::memory_order_relaxed);
    words[1].store(static_cast<uint64_t>(piece) << kPieceShift | slot_and_port,
                   std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_release);
  }

  // The newest event; false if there is none. Any thread.
  bool Last(ActorEvent& event) const {
    const uint64_t count = count_.load(std::memory_order_acquire);
    if (count == 0) return false;
    event = At(count - 1);
    return true;
  }

  // Oldest first; without those that were overwritten meanwhile. Any thread.
  std::vector<ActorEvent> Read() const {
    const uint64_t end = count_.load(std::memory_order_acquire);
    const uint64_t begin = end > kSize ? end - kSize : 0;
    std::vector<ActorEvent> events;
    for (uint64_t i = begin; i < end; ++i) events.push_back(At(i));
    std::atomic_thread_fence(std::memory_order_acquire);
    // One more than is counted may be under way.
    const uint64_t written = count_.load(std::memory_order_relaxed) + 1;
    const uint64_t kept = written > kSize ? written - kSize : 0;
    if (kept > begin) {
      events.erase(events.begin(),
                   events.begin() + static_cast<std::ptrdiff_t>(std::min(kept, end) - begin));
    }
    return events;
  }

 private:
  static constexpr int kTimeUnitBits = 10, kTimeShift = 24, kKindShift = 21;
  static constexpr int kPieceShift = 28, kSlotShift = 16;
  static constexpr uint64_t kActorMask = (1 << 21) - 1, kSlotMask = (1 << 12) - 1;
  static constexpr uint64_t kPortMask = (1 << 16) - 1;

  ActorEvent At(uint64_t index) const {
    const uint64_t first = words_[2 * (index % kSize)].load(std::memory_order_relaxed);
    const uint64_t second = words_[2 * (index % kSize) + 1].load(std::memory_order_relaxed);
    return {.kind = static_cast<ActorEvent::Kind>(first >> kKindShift & 7),
            .actor = static_cast<uint32_t>(first & kActorMask),
            .port = static_cast<uint32_t>(second & kPortMask),
            .slot = static_cast<uint32_t>(second >> kSlotShift & kSlotMask),
            .piece = static_cast<int64_t>(second >> kPieceShift),
            .time = static_cast<Nanoseconds>(first >> kTimeShift << kTimeUnitBits)};
  }

  std::atomic<uint64_t> count_{0};
  // An event lies in one cache line.
  alignas(64) std::array<std::atomic<uint64_t>, 2 * kSize> words_{};
};

}  // namespace braid
