// The frames of process groups (Channel::kGroup): those of their collectives, those of sends and
// receives, and those of windows. Little-endian, fixed layout, checked on arrival.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "absl/status/statusor.h"
#include "comm/collective/collective_frame.h"
#include "comm/transport.h"
#include "runtime/group/window_frame.h"

namespace braid::dist {

struct TransferFrame {
  enum class Type : uint8_t {
    kOffer = 4,  // `from` is in a receive, and `to` may write what it sends there
    kPart = 5,   // `from` has written a part of what it sends to `to`
  };
  Type type = Type::kPart;
  uint64_t group = 0;
  uint16_t from = 0;  // ranks
  uint16_t to = 0;
  int64_t number = 0;      // of the receive, among those of one rank from another: from 0, growing
  uint32_t tag = 0;        // kOffer
  MemoryKey key = {};      // kOffer
  uint64_t signature = 0;  // kOffer: TransferSignatureOf
  int64_t offset = 0;      // kPart: of its first byte
  int64_t bytes = 0;       // kPart

  bool operator==(const TransferFrame&) const = default;
};

// Offsets: 0 channel, 1 type, 2 two zeros, 4 tag, 8 group, 16 from, 18 to, 20 number; then for
// kOffer: 28 key, 52 signature; for kPart: 28 offset, 36 bytes.
class EncodedTransferFrame {
 public:
  explicit EncodedTransferFrame(const TransferFrame& frame);
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::byte, kMaxFrameBytes> bytes_{};
  size_t size_;
};

using GroupFrame = std::variant<CollectiveFrame, TransferFrame, WindowFrame>;
absl::StatusOr<GroupFrame> DecodeGroupFrame(std::span<const std::byte> bytes);

uint64_t GroupOf(const GroupFrame& frame);
// Whether it may come before its group is opened at the node that it is for.
bool MayBeEarly(const GroupFrame& frame);

}  // namespace braid::dist
