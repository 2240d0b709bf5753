// The frames of collectives, in their own channel or in that of process groups: little-endian,
// fixed layout, checked on arrival.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "comm/collective/collective.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"

namespace braid {

struct CollectiveFrame {
  // What lies between are the other frames of process groups (runtime/group/group_frame.h).
  enum class Type : uint8_t {
    kKey = 1,     // `to` may write into `from`'s landing slots
    kChunk = 2,   // `from` has put an item into `to`'s slot
    kAck = 3,     // `from` has worked in what `to` put into the slot
    kOffer = 14,  // `to` may write into `from`'s output until it has sent its items of `piece`
    kLent = 15,   // as kChunk, but the item is to be read where it lies, and not in the slot
    kStand = 16,  // `to` may read `from`'s stand (meeting_place.h); with no bytes: it cannot
    kSeen = 17,   // `from` reads the stands of all: slot 1; or not of all: 0
    kRing = 18,   // `from` has said something on its stand, and `to` slept
  };
  Type type = Type::kChunk;
  Channel channel = Channel::kCollective;  // whose numbers `collective` is of
  CollectiveId collective = 0;
  uint16_t from = 0;  // ranks
  uint16_t to = 0;
  uint32_t slot = 0;   // kKey: how many there are
  int64_t piece = 0;   // kChunk, kLent, kAck, kOffer
  int64_t index = 0;   // kChunk, kLent, kAck: which item of the hop
  int64_t bytes = 0;   // kChunk, kLent: of the item; kKey: of a slot
  MemoryKey key = {};  // kKey, kOffer, kStand
  // kKey: of the spec that the sender was made with. kChunk, kLent, kOffer: ChunkWork::signature.
  uint64_t fingerprint = 0;
  uint64_t token = 0;       // kLent: of the key with which it was lent
  bool reads_lent = false;  // kKey: Link::can_read_lent

  bool operator==(const CollectiveFrame&) const = default;
};

// Offsets: 0 channel, 1 type, 2 two zeros, 4 slot, 8 collective, 16 from, 18 to, 20 bytes (kOffer:
// piece), which is all of kSeen and kRing; then for kKey, kOffer and kStand: 28 key, 52
// fingerprint, and for kKey: 60 reads_lent; else: 28 piece, 36 index, and for kChunk and kLent: 44
// fingerprint, and for kLent: 52 token.
class EncodedCollectiveFrame {
 public:
  explicit EncodedCollectiveFrame(const CollectiveFrame& frame);
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, kMaxFrameBytes> bytes_{};
  size_t size_;
};

absl::StatusOr<CollectiveFrame> DecodeCollectiveFrame(std::span<const std::byte> bytes);

// What Stands take, and nobody else.
constexpr bool IsOfStands(CollectiveFrame::Type type) {
  return type == CollectiveFrame::Type::kStand || type == CollectiveFrame::Type::kSeen ||
         type == CollectiveFrame::Type::kRing;
}

// Equal for specs that fit together: everything but my_rank, an all_to_all's counts and the address
// of `reduce`.
uint64_t CollectiveFingerprint(const CollectiveSpec& spec);
// Of a spec's fingerprint and what one member sends another in an all_to_all (0 in all others), in
// elements.
uint64_t HopFingerprint(uint64_t fingerprint, int64_t elements);

}  // namespace braid
