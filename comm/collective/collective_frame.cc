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

constexpr size_t kKeyFrameBytes = 60;
constexpr size_t kChunkFrameBytes = 52;
constexpr size_t kAckFrameBytes = 44;

size_t SizeOfFrame(CollectiveFrame::Type type) {
  switch (type) {
    case CollectiveFrame::Type::kKey:
      return kKeyFrameBytes;
    case CollectiveFrame::Type::kChunk:
      return kChunkFrameBytes;
    case CollectiveFrame::Type::kAck:
      return kAckFrameBytes;
  }
  return 0;
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
  PutFrameHead(bytes_, {.channel = static_cast<uint8_t>(frame.channel),
                        .type = static_cast<uint8_t>(frame.type),
                        .slot = frame.slot,
                        .id = frame.collective,
                        .from = frame.from,
                        .to = frame.to,
                        .number = frame.bytes});
  if (frame.type == CollectiveFrame::Type::kKey) {
    PutMemoryKey(bytes_, 28, frame.key);
    PutLittleEndian(bytes_, 52, frame.fingerprint);
  } else {
    PutLittleEndian(bytes_, 28, frame.piece);
    PutLittleEndian(bytes_, 36, frame.index);
    if (frame.type == CollectiveFrame::Type::kChunk) PutLittleEndian(bytes_, 44, frame.fingerprint);
  }
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
  if (type < static_cast<uint8_t>(CollectiveFrame::Type::kKey) ||
      type > static_cast<uint8_t>(CollectiveFrame::Type::kAck)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong collective frame: type %d, must be 1, 2 or 3", type));
  }
  CollectiveFrame frame;
  frame.type = static_cast<CollectiveFrame::Type>(type);
  frame.channel = static_cast<Channel>(channel);
  const bool is_key = frame.type == CollectiveFrame::Type::kKey;
  BRAID_ASSIGN_OR_RETURN(const FrameHead head,
                         GetFrameHead(bytes, SizeOfFrame(frame.type), "collective"));
  frame.slot = head.slot;
  frame.collective = head.id;
  frame.from = head.from;
  frame.to = head.to;
  frame.bytes = head.number;
  if (is_key) {
    frame.key = GetMemoryKey(bytes, 28);
    frame.fingerprint = GetLittleEndian<uint64_t>(bytes, 52);
  } else {
    frame.piece = GetLittleEndian<int64_t>(bytes, 28);
    frame.index = GetLittleEndian<int64_t>(bytes, 36);
    if (frame.type == CollectiveFrame::Type::kChunk) {
      frame.fingerprint = GetLittleEndian<uint64_t>(bytes, 44);
    }
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
  }
  add(spec.element_size);
  if (spec.kind != CollectiveKind::kAllToAll) {
    for (const int64_t count : spec.counts) add(count);
  }
  add(spec.root);
  add(spec.chunk_bytes);
  return HashOf(words);
}

uint64_t HopFingerprint(uint64_t fingerprint, int64_t elements) {
  return HashOf(std::array{fingerprint, static_cast<uint64_t>(elements)});
}

}  // namespace braid
