#include "runtime/group/group_frame.h"

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

using Type = TransferFrame::Type;

constexpr size_t kOfferFrameBytes = 60;
constexpr size_t kPartFrameBytes = 44;

absl::StatusOr<TransferFrame> DecodeTransferFrame(std::span<const std::byte> bytes) {
  TransferFrame frame;
  frame.type = static_cast<Type>(GetLittleEndian<uint8_t>(bytes, 1));
  const bool is_offer = frame.type == Type::kOffer;
  const size_t size = is_offer ? kOfferFrameBytes : kPartFrameBytes;
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "wrong transfer frame: type %d has %d bytes, must be %d", frame.type, bytes.size(), size));
  }
  if (const auto zero = GetLittleEndian<uint16_t>(bytes, 2); zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong transfer frame: bytes 2 and 3 are %d, must be 0", zero));
  }
  frame.tag = GetLittleEndian<uint32_t>(bytes, 4);
  frame.group = GetLittleEndian<uint64_t>(bytes, 8);
  frame.from = GetLittleEndian<uint16_t>(bytes, 16);
  frame.to = GetLittleEndian<uint16_t>(bytes, 18);
  frame.number = GetLittleEndian<int64_t>(bytes, 20);
  if (is_offer) {
    frame.key = GetMemoryKey(bytes, 28);
    frame.signature = GetLittleEndian<uint64_t>(bytes, 52);
  } else {
    frame.offset = GetLittleEndian<int64_t>(bytes, 28);
    frame.bytes = GetLittleEndian<int64_t>(bytes, 36);
  }
  return frame;
}

}  // namespace

EncodedTransferFrame::EncodedTransferFrame(const TransferFrame& frame) {
  PutLittleEndian(bytes_, 0, static_cast<uint8_t>(Channel::kGroup));
  PutLittleEndian(bytes_, 1, static_cast<uint8_t>(frame.type));
  PutLittleEndian(bytes_, 4, frame.tag);
  PutLittleEndian(bytes_, 8, frame.group);
  PutLittleEndian(bytes_, 16, frame.from);
  PutLittleEndian(bytes_, 18, frame.to);
  PutLittleEndian(bytes_, 20, frame.number);
  if (frame.type == Type::kOffer) {
    PutMemoryKey(bytes_, 28, frame.key);
    PutLittleEndian(bytes_, 52, frame.signature);
    size_ = kOfferFrameBytes;
  } else {
    PutLittleEndian(bytes_, 28, frame.offset);
    PutLittleEndian(bytes_, 36, frame.bytes);
    size_ = kPartFrameBytes;
  }
}

absl::StatusOr<GroupFrame> DecodeGroupFrame(std::span<const std::byte> bytes) {
  if (bytes.size() >= 2) {
    const auto type = GetLittleEndian<uint8_t>(bytes, 1);
    if (type == static_cast<uint8_t>(Type::kOffer) || type == static_cast<uint8_t>(Type::kPart)) {
      BRAID_ASSIGN_OR_RETURN(const TransferFrame frame, DecodeTransferFrame(bytes));
      return frame;
    }
    if (IsWindowFrame(type)) {
      BRAID_ASSIGN_OR_RETURN(const WindowFrame frame, DecodeWindowFrame(bytes));
      return frame;
    }
  }
  BRAID_ASSIGN_OR_RETURN(const CollectiveFrame frame, DecodeCollectiveFrame(bytes));
  return frame;
}

uint64_t GroupOf(const GroupFrame& frame) {
  if (const auto* collective = std::get_if<CollectiveFrame>(&frame)) return collective->collective;
  if (const auto* window = std::get_if<WindowFrame>(&frame)) return window->group;
  return std::get<TransferFrame>(frame).group;
}

bool MayBeEarly(const GroupFrame& frame) {
  if (const auto* collective = std::get_if<CollectiveFrame>(&frame)) {
    return collective->type == CollectiveFrame::Type::kKey;
  }
  const auto* transfer = std::get_if<TransferFrame>(&frame);
  return transfer != nullptr && transfer->type == Type::kOffer;
}

}  // namespace braid::dist
