#include "runtime/group/window_frame.h"

#include "absl/strings/str_format.h"
#include "comm/frame_head.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

size_t BytesOfFrame(WindowFrame::Type type) {
  switch (type) {
    case WindowFrame::Type::kKey:
      return 52;
    case WindowFrame::Type::kPut:
      return 40;
    case WindowFrame::Type::kGot:
      return 36;
    case WindowFrame::Type::kGet:
      return 60;
    case WindowFrame::Type::kAsk:
    case WindowFrame::Type::kPutDone:
    case WindowFrame::Type::kGone:
    case WindowFrame::Type::kGoneSeen:
      return 28;
  }
  return 0;
}

}  // namespace

bool IsWindowFrame(uint8_t type) {
  return type >= static_cast<uint8_t>(WindowFrame::Type::kAsk) &&
         type <= static_cast<uint8_t>(WindowFrame::Type::kGoneSeen);
}

EncodedWindowFrame::EncodedWindowFrame(const WindowFrame& frame) : size_(BytesOfFrame(frame.type)) {
  PutFrameHead(bytes_, {.channel = static_cast<uint8_t>(Channel::kGroup),
                        .type = static_cast<uint8_t>(frame.type),
                        .slot = frame.window,
                        .id = frame.group,
                        .from = frame.from,
                        .to = frame.to,
                        .number = frame.number});
  switch (frame.type) {
    case WindowFrame::Type::kKey:
      PutMemoryKey(bytes_, 28, frame.key);
      break;
    case WindowFrame::Type::kPut:
      PutLittleEndian(bytes_, 36, frame.signal);
      [[fallthrough]];
    case WindowFrame::Type::kGot:
      PutLittleEndian(bytes_, 28, frame.left);
      break;
    case WindowFrame::Type::kGet:
      PutLittleEndian(bytes_, 28, frame.offset);
      PutMemoryKey(bytes_, 36, frame.key);
      break;
    default:
      break;
  }
}

absl::StatusOr<WindowFrame> DecodeWindowFrame(std::span<const std::byte> bytes) {
  WindowFrame frame;
  frame.type = static_cast<WindowFrame::Type>(GetLittleEndian<uint8_t>(bytes, 1));
  BRAID_ASSIGN_OR_RETURN(const FrameHead head,
                         GetFrameHead(bytes, BytesOfFrame(frame.type), "window"));
  frame.window = head.slot;
  frame.group = head.id;
  frame.from = head.from;
  frame.to = head.to;
  frame.number = head.number;
  switch (frame.type) {
    case WindowFrame::Type::kKey:
      frame.key = GetMemoryKey(bytes, 28);
      break;
    case WindowFrame::Type::kPut:
      frame.signal = GetLittleEndian<uint32_t>(bytes, 36);
      [[fallthrough]];
    case WindowFrame::Type::kGot:
      frame.left = GetLittleEndian<int64_t>(bytes, 28);
      break;
    case WindowFrame::Type::kGet:
      frame.offset = GetLittleEndian<int64_t>(bytes, 28);
      frame.key = GetMemoryKey(bytes, 36);
      break;
    default:
      break;
  }
  return frame;
}

}  // namespace braid::dist
