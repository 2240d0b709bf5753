// Messages over Links: the one place where actors meet transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "actor/message_bus.h"
#include "comm/transport.h"
#include "runtime/base/ids.h"

namespace braid {

// Frames: channel (1 byte), job (8, little-endian), then the message or key.
constexpr size_t kJobFrameHeader = 9;

class RemoteBus final : public RemoteSender {
 public:
  // `link_of` gives the Link to a node, or nullptr.
  RemoteBus(JobId job, std::function<Link*(uint16_t)> link_of)
      : job_(job), link_of_(std::move(link_of)) {}
  absl::Status Send(const Message& message) override;

 private:
  const JobId job_;
  const std::function<Link*(uint16_t)> link_of_;
};

// Where a register's landing slots are, for the peer that writes there.
struct LandingKey {
  RegisterId reg = 0;
  MemoryKey key;
};
void SendLandingKey(Link& link, JobId job, const LandingKey& key);

// Frames of Channel::kActor and kLandingKey. INVALID_ARGUMENT for a wrong size.
absl::StatusOr<JobId> JobOfFrame(std::span<const std::byte> frame);
absl::StatusOr<Message> MessageOfFrame(std::span<const std::byte> frame);
absl::StatusOr<LandingKey> LandingKeyOfFrame(std::span<const std::byte> frame);

}  // namespace braid
