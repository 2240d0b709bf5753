#include "actor/register_ring.h"

#include "absl/strings/str_format.h"

namespace braid {

std::string InputRing::Objection(uint32_t slot, int64_t piece) const {
  if (slot >= slots_) return absl::StrFormat("slot %d of %d does not exist", slot, slots_);
  if (piece < received_ && piece >= consumed_) {
    return absl::StrFormat("slot %d is already ready (piece %d)", slot, piece);
  }
  if (piece < consumed_) return absl::StrFormat("piece %d was already consumed", piece);
  if (received_ - consumed_ >= slots_) {
    return absl::StrFormat("slot %d is written while read: all %d slots are ready or in use", slot,
                           slots_);
  }
  return absl::StrFormat("slot %d with piece %d is out of order: slot %d with piece %d is next",
                         slot, piece, next_slot_, received_);
}

OutputRing::OutputRing(const OutputSpec& spec)
    : slots_(spec.slots),
      period_(spec.period),
      slot_(spec.initial_tokens % spec.slots),
      sent_(spec.initial_tokens),
      readers_left_(spec.slots, 0),
      readers_(spec.consumers.size()) {
  for (uint32_t slot = 0; slot < spec.initial_tokens; ++slot) {
    readers_left_[slot] = static_cast<uint32_t>(readers_.size());
  }
}

std::string OutputRing::Objection(uint32_t reader, uint32_t slot, int64_t piece) const {
  const Reader& from = readers_[reader];
  if (slot >= slots_) return absl::StrFormat("slot %d of %d does not exist", slot, slots_);
  if (piece < from.acknowledged) {
    return absl::StrFormat("slot %d with piece %d was already acknowledged", slot, piece);
  }
  if (piece >= sent_) {
    return absl::StrFormat("slot %d with piece %d was not sent yet", slot, piece);
  }
  return absl::StrFormat("slot %d with piece %d is out of order: slot %d with piece %d is next",
                         slot, piece, from.next_slot, from.acknowledged);
}

int64_t OutputRing::Owes(uint32_t reader) const {
  const int64_t previous = sent_ - slots_;  // the piece that was in slot() before
  return previous >= 0 && readers_[reader].acknowledged <= previous ? previous : -1;
}

}  // namespace braid
