// Messages over Links: the one place where actors meet transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "actor/message_bus.h"
#include "comm/transport.h"

namespace braid {

// Frames: channel (1 byte), job (2, little-endian), then the message or key.
constexpr size_t kJobFrameHeader = 3;

class RemoteBus final : public RemoteSender {
 public:
  // `link_of` gives the Link to a node, or nullptr.
  RemoteBus(uint16_t job, std::function<Link*(uint16_t)> link_of)
      : job_(job), link_of_(std::move(link_of)) {}
  absl::Status Send(const Message& message) override;

 private:
  const uint16_t job_;
  const std::function<Link*(uint16_t)> link_of_;
};

// Where a register's landing slots are, for the peer that writes there.
struct LandingKey {
  RegisterId reg = 0;
  MemoryKey key;
};
void SendLandingKey(Link& link, uint16_t job, const LandingKey& key);

// Frames of Channel::kActor and kLandingKey. INVALID_ARGUMENT for a wrong size.
absl::StatusOr<uint16_t> JobOfFrame(std::span<const std::byte> frame);
absl::StatusOr<Message> MessageOfFrame(std::span<const std::byte> frame);
absl::StatusOr<LandingKey> LandingKeyOfFrame(std::span<const std::byte> frame);

}  // namespace braid
