#include "comm/collective/collective_frame.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/frame_head.h"
#include "comm/little_endian.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr size_t kKeyFrameBytes = 61;
constexpr size_t kPlaceFrameBytes = 60;
constexpr size_t kLentFrameBytes = 60;
constexpr size_t kChunkFrameBytes = 52;
constexpr size_t kAckFrameBytes = 44;
constexpr size_t kShortFrameBytes = 28;

size_t SizeOfFrame(CollectiveFrame::Type type) {
  switch (type) {
    case CollectiveFrame::Type::kKey:
      return kKeyFrameBytes;
    case CollectiveFrame::Type::kOffer:
    case CollectiveFrame::Type::kStand:
      return kPlaceFrameBytes;
    case CollectiveFrame::Type::kLent:
      return kLentFrameBytes;
    case CollectiveFrame::Type::kChunk:
      return kChunkFrameBytes;
    case CollectiveFrame::Type::kAck:
      return kAckFrameBytes;
    case CollectiveFrame::Type::kSeen:
    case CollectiveFrame::Type::kRing:
      return kShortFrameBytes;
  }
  return 0;
}

// Such as have a key, in place of a piece and an item.
bool HasKey(CollectiveFrame::Type type) {
  return type == CollectiveFrame::Type::kKey || type == CollectiveFrame::Type::kOffer ||
         type == CollectiveFrame::Type::kStand;
}

// Such as have nothing but a head.
bool IsShort(CollectiveFrame::Type type) {
  return type == CollectiveFrame::Type::kSeen || type == CollectiveFrame::Type::kRing;
}

uint64_t HashOf(std::span<const uint64_t> words) {
  std::string bytes(words.size() * sizeof(uint64_t), '\0');
  for (size_t i = 0; i < words.size(); ++i) {
    PutLittleEndian(std::as_writable_bytes(std::span(bytes)), i * sizeof(uint64_t), words[i]);
  }
  return StableHash(bytes);
}

}  // namespace

EncodedCollectiveFrame::EncodedCollectiveFrame(const CollectiveFrame& frame)
    : size_(SizeOfFrame(frame.type)) {
  PutFrameHead(bytes_,
               {.channel = static_cast<uint8_t>(frame.channel),
                .type = static_cast<uint8_t>(frame.type),
                .slot = frame.slot,
                .id = frame.collective,
                .from = frame.from,
                .to = frame.to,
                .number = frame.type == CollectiveFrame::Type::kOffer ? frame.piece : frame.bytes});
  if (HasKey(frame.type)) {
    PutMemoryKey(bytes_, 28, frame.key);
    PutLittleEndian(bytes_, 52, frame.fingerprint);
    if (frame.type == CollectiveFrame::Type::kKey) {
      PutLittleEndian(bytes_, 60, static_cast<uint8_t>(frame.reads_lent));
    }
    return;
  }
  if (IsShort(frame.type)) return;
  PutLittleEndian(bytes_, 28, frame.piece);
  PutLittleEndian(bytes_, 36, frame.index);
  if (frame.type == CollectiveFrame::Type::kAck) return;
  PutLittleEndian(bytes_, 44, frame.fingerprint);
  if (frame.type == CollectiveFrame::Type::kLent) PutLittleEndian(bytes_, 52, frame.token);
}

absl::StatusOr<CollectiveFrame> DecodeCollectiveFrame(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong collective frame: %d bytes, must be 2 at least", bytes.size()));
  }
  const auto channel = GetLittleEndian<uint8_t>(bytes, 0);
  const auto type = GetLittleEndian<uint8_t>(bytes, 1);
  if (channel != static_cast<uint8_t>(Channel::kCollective) &&
      channel != static_cast<uint8_t>(Channel::kGroup)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong collective frame: channel %d, must be %d or %d", channel,
                        Channel::kCollective, Channel::kGroup));
  }
  if (SizeOfFrame(static_cast<CollectiveFrame::Type>(type)) == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong collective frame: type %d, must be 1 to 3, or 14 to 18", type));
  }
  CollectiveFrame frame;
  frame.type = static_cast<CollectiveFrame::Type>(type);
  frame.channel = static_cast<Channel>(channel);
  BRAID_ASSIGN_OR_RETURN(const FrameHead head,
                         GetFrameHead(bytes, SizeOfFrame(frame.type), "collective"));
  frame.slot = head.slot;
  frame.collective = head.id;
  frame.from = head.from;
  frame.to = head.to;
  if (frame.type == CollectiveFrame::Type::kOffer) {
    frame.piece = head.number;
  } else {
    frame.bytes = head.number;
  }
  if (HasKey(frame.type)) {
    frame.key = GetMemoryKey(bytes, 28);
    frame.fingerprint = GetLittleEndian<uint64_t>(bytes, 52);
    if (frame.type != CollectiveFrame::Type::kKey) return frame;
    const auto reads_lent = GetLittleEndian<uint8_t>(bytes, 60);
    if (reads_lent > 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("wrong collective frame: byte 60 is %d, must be 0 or 1", reads_lent));
    }
    frame.reads_lent = reads_lent == 1;
    return frame;
  }
  if (IsShort(frame.type)) return frame;
  frame.piece = GetLittleEndian<int64_t>(bytes, 28);
  frame.index = GetLittleEndian<int64_t>(bytes, 36);
  if (frame.type == CollectiveFrame::Type::kAck) return frame;
  frame.fingerprint = GetLittleEndian<uint64_t>(bytes, 44);
  if (frame.type == CollectiveFrame::Type::kLent) {
    frame.token = GetLittleEndian<uint64_t>(bytes, 52);
  }
  return frame;
}

uint64_t CollectiveFingerprint(const CollectiveSpec& spec) {
  std::vector<uint64_t> words;
  const auto add = [&words](uint64_t value) { words.push_back(value); };
  add(spec.id);
  add(spec.name.size());
  for (const char c : spec.name) add(static_cast<unsigned char>(c));
  add(static_cast<uint64_t>(spec.kind));
  add(static_cast<uint64_t>(spec.algorithm));
  add(spec.members.size());
  for (const Member& member : spec.members) {
    add(member.node);
    add(member.device);
    add(member.host);
  }
  add(spec.element_size);
  if (spec.kind != CollectiveKind::kAllToAll) {
    for (const int64_t count : spec.counts) add(count);
  }
  add(spec.root);
  add(spec.chunk_bytes);
  add(spec.place_from);
  return HashOf(words);
}

uint64_t HopFingerprint(uint64_t fingerprint, int64_t elements) {
  return HashOf(std::array{fingerprint, static_cast<uint64_t>(elements)});
}

}  // namespace braid
