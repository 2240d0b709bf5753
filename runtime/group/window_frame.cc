#include "runtime/group/window_frame.h"

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"

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
  PutLittleEndian(bytes_, 0, static_cast<uint8_t>(Channel::kGroup));
  PutLittleEndian(bytes_, 1, static_cast<uint8_t>(frame.type));
  PutLittleEndian(bytes_, 4, frame.window);
  PutLittleEndian(bytes_, 8, frame.group);
  PutLittleEndian(bytes_, 16, frame.from);
  PutLittleEndian(bytes_, 18, frame.to);
  PutLittleEndian(bytes_, 20, frame.number);
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
  if (const size_t size = BytesOfFrame(frame.type); bytes.size() != size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "wrong window frame: type %d has %d bytes, must be %d", frame.type, bytes.size(), size));
  }
  if (const auto zero = GetLittleEndian<uint16_t>(bytes, 2); zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("wrong window frame: bytes 2 and 3 are %d, must be 0", zero));
  }
  frame.window = GetLittleEndian<uint32_t>(bytes, 4);
  frame.group = GetLittleEndian<uint64_t>(bytes, 8);
  frame.from = GetLittleEndian<uint16_t>(bytes, 16);
  frame.to = GetLittleEndian<uint16_t>(bytes, 18);
  frame.number = GetLittleEndian<int64_t>(bytes, 20);
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
