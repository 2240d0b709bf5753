// The counting at the two ends of a register: which slot is next, whether it is there, and whether
// what the other end says can be true. Slots go round in order, so each end needs counters only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actor/actor_spec.h"

namespace braid {

// A consumer's end.
class InputRing {
 public:
  explicit InputRing(const InputSpec& spec)
      : slots_(spec.slots),
        period_(spec.period),
        received_(spec.initial_tokens),
        next_slot_(spec.initial_tokens % spec.slots) {}

  bool is_ready() const { return received_ != consumed_; }
  // What the next act reads, or, unless ready, waits for.
  uint32_t slot() const { return slot_; }
  int64_t piece() const { return consumed_; }
  uint32_t slots() const { return slots_; }
  // Slots that are ready, the one that is read now among them.
  uint32_t used() const { return static_cast<uint32_t>(received_ - consumed_); }

  // A kReady; false if it cannot be true (see Objection).
  bool Receive(uint32_t slot, int64_t piece) {
    if (slot != next_slot_ || piece != received_ || received_ - consumed_ >= slots_) return false;
    ++received_;
    if (++next_slot_ == slots_) next_slot_ = 0;
    return true;
  }
  // Why Receive(slot, piece) is refused.
  std::string Objection(uint32_t slot, int64_t piece) const;

  // An act read the slot. True if that was its last use: then slot() and piece() before the call
  // are to be acknowledged.
  bool Use() {
    if (++uses_ != period_) return false;
    uses_ = 0;
    ++consumed_;
    if (++slot_ == slots_) slot_ = 0;
    return true;
  }

 private:
  uint32_t slots_;
  uint32_t period_;
  uint32_t uses_ = 0;     // acts that read the slot so far
  uint32_t slot_ = 0;     // consumed_ mod slots_
  int64_t received_;      // pieces
  int64_t consumed_ = 0;  // pieces
  uint32_t next_slot_;    // received_ mod slots_
};

// The producer's end.
class OutputRing {
 public:
  explicit OutputRing(const OutputSpec& spec);

  // The next act may write slot(): it is being filled, or all its readers have acknowledged.
  bool is_free() const { return readers_left_[slot_] == 0; }
  uint32_t slot() const { return slot_; }
  int64_t piece() const { return sent_; }

  // A kAck of consumer `reader`; false if it cannot be true (see Objection).
  bool Acknowledge(uint32_t reader, uint32_t slot, int64_t piece) {
    Reader& from = readers_[reader];
    if (slot != from.next_slot || piece != from.acknowledged || piece >= sent_) return false;
    ++from.acknowledged;
    if (++from.next_slot == slots_) from.next_slot = 0;
    --readers_left_[slot];
    return true;
  }
  std::string Objection(uint32_t reader, uint32_t slot, int64_t piece) const;

  // An act wrote the slot. True if that filled it: then slot() and piece() before the call are to
  // be announced to every consumer.
  bool Fill() {
    if (++fills_ != period_) return false;
    fills_ = 0;
    readers_left_[slot_] = static_cast<uint32_t>(readers_.size());
    ++sent_;
    if (++slot_ == slots_) slot_ = 0;
    return true;
  }

  // Slots that were announced to `reader` and that it has not acknowledged.
  uint32_t used(uint32_t reader) const {
    return static_cast<uint32_t>(sent_ - readers_[reader].acknowledged);
  }
  // The piece that `reader` has to acknowledge before slot() is free; -1 if it need not.
  int64_t Owes(uint32_t reader) const;

 private:
  struct Reader {
    int64_t acknowledged = 0;  // pieces
    uint32_t next_slot = 0;    // acknowledged mod slots_
  };

  uint32_t slots_;
  uint32_t period_;
  uint32_t fills_ = 0;                  // acts that wrote the slot so far
  uint32_t slot_;                       // sent_ mod slots_
  int64_t sent_;                        // pieces
  std::vector<uint32_t> readers_left_;  // per slot
  std::vector<Reader> readers_;         // per consumer
};

}  // namespace braid
