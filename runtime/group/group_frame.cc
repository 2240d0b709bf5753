#include "runtime/group/group_frame.h"

#include "absl/strings/str_format.h"
#include "comm/frame_head.h"
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
  BRAID_ASSIGN_OR_RETURN(
      const FrameHead head,
      GetFrameHead(bytes, is_offer ? kOfferFrameBytes : kPartFrameBytes, "transfer"));
  frame.tag = head.slot;
  frame.group = head.id;
  frame.from = head.from;
  frame.to = head.to;
  frame.number = head.number;
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
  PutFrameHead(bytes_, {.channel = static_cast<uint8_t>(Channel::kGroup),
                        .type = static_cast<uint8_t>(frame.type),
                        .slot = frame.tag,
                        .id = frame.group,
                        .from = frame.from,
                        .to = frame.to,
                        .number = frame.number});
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
    return collective->type == CollectiveFrame::Type::kKey ||
           collective->type == CollectiveFrame::Type::kOffer ||
           collective->type == CollectiveFrame::Type::kStand;
  }
  const auto* transfer = std::get_if<TransferFrame>(&frame);
  return transfer != nullptr && transfer->type == Type::kOffer;
}

}  // namespace braid::dist
