#include "runtime/remote_bus.h"

#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "comm/little_endian.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr size_t kLandingKeyFrame = kJobFrameHeader + 4 + kMemoryKeyBytes;

absl::Status WrongSize(std::span<const std::byte> frame, size_t expected) {
  return absl::InvalidArgumentError(
      absl::StrFormat("a frame of channel %d has %d bytes; %d were expected",
                      static_cast<int>(frame[0]), frame.size(), expected));
}

}  // namespace

absl::Status RemoteBus::Send(const Message& message) {
  Link* link = link_of_(message.dst.node);
  if (link == nullptr) {
    return absl::InternalError(
        absl::StrFormat("no link to node %d for %s", message.dst.node, ToString(message)));
  }
  std::array<std::byte, kJobFrameHeader + kMessageBytes> frame;
  frame[0] = static_cast<std::byte>(Channel::kActor);
  PutLittleEndian<JobId>(frame, 1, job_);
  const MessageBytes bytes = Encode(message);
  std::memcpy(frame.data() + kJobFrameHeader, bytes.data(), bytes.size());
  link->Send(frame);
  return absl::OkStatus();
}

void SendLandingKey(Link& link, JobId job, const LandingKey& key) {
  std::array<std::byte, kLandingKeyFrame> frame;
  frame[0] = static_cast<std::byte>(Channel::kLandingKey);
  PutLittleEndian<JobId>(frame, 1, job);
  PutLittleEndian<uint32_t>(frame, kJobFrameHeader, key.reg);
  PutMemoryKey(frame, kJobFrameHeader + 4, key.key);
  link.Send(frame);
}

absl::StatusOr<JobId> JobOfFrame(std::span<const std::byte> frame) {
  if (frame.size() < kJobFrameHeader) return WrongSize(frame, kJobFrameHeader);
  return GetLittleEndian<JobId>(frame, 1);
}

absl::StatusOr<Message> MessageOfFrame(std::span<const std::byte> frame) {
  if (frame.size() != kJobFrameHeader + kMessageBytes) {
    return WrongSize(frame, kJobFrameHeader + kMessageBytes);
  }
  BRAID_ASSIGN_OR_RETURN(
      const Message message,
      Decode({reinterpret_cast<const uint8_t*>(frame.data()) + kJobFrameHeader, kMessageBytes}));
  // A node's threads run and end by its own orders only.
  if (message.kind != MessageKind::kReady && message.kind != MessageKind::kAck) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "message refused (%s): nodes send each other kReady and kAck", ToString(message)));
  }
  return message;
}

absl::StatusOr<LandingKey> LandingKeyOfFrame(std::span<const std::byte> frame) {
  if (frame.size() != kLandingKeyFrame) return WrongSize(frame, kLandingKeyFrame);
  return LandingKey{GetLittleEndian<uint32_t>(frame, kJobFrameHeader),
                    GetMemoryKey(frame, kJobFrameHeader + 4)};
}

}  // namespace braid
