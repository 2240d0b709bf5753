#include "comm/rdma/rdma_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What is staged goes in parts of at most that much, so that the device sends one while the next is
// copied.
constexpr size_t kStagedPart = 64 << 10;
// A message of credits may take the last one.
constexpr uint32_t kForCredits = 1;

}  // namespace

void RdmaSender::Begin(uint32_t receives) { receives_ = credits_ = receives; }

std::span<const std::byte> RdmaSender::NextPart(const RdmaPacket& packet,
                                                std::optional<uint32_t> key) const {
  const std::span<const std::byte> rest = packet.payload.subspan(packet.posted);
  if (key.has_value()) {
    return rest.first(std::min<size_t>(rest.size(), pair_.route().max_message));
  }
  const uint64_t room = kRdmaStagingBytes - (staged_ - released_);
  const uint64_t run = kRdmaStagingBytes - staged_ % kRdmaStagingBytes;  // a part lies in one
  return rest.first(std::min({rest.size(), room, run, kStagedPart}));
}

std::span<const std::byte> RdmaSender::Stage(std::span<const std::byte> part) {
  if (part.empty()) return part;
  const std::span<std::byte> place =
      pair_.staging().subspan(staged_ % kRdmaStagingBytes, part.size());
  std::memcpy(place.data(), part.data(), part.size());
  staged_ += part.size();
  return place;
}

std::span<const std::byte> RdmaSender::MakeMessage(RdmaMessage message,
                                                   std::span<const std::byte> frame) {
  message.frame_bytes = static_cast<uint8_t>(frame.size());
  message.credits = static_cast<uint16_t>(owed_.exchange(0, std::memory_order_relaxed));
  message.sequence = sequence_++;
  PutRdmaHead(message, message_);
  std::ranges::copy(frame, message_.begin() + kRdmaHeadBytes);
  --credits_;
  return std::span<const std::byte>(message_).first(kRdmaHeadBytes + frame.size());
}

absl::Status RdmaSender::PostRequest(RdmaQueuePair::Request request, Posted posted) {
  posted.number = request.number = ++last_number_;
  posted.sends = RdmaQueuePair::SendsOf(request);
  sends_ += posted.sends;
  unsignaled_ += posted.sends;
  request.is_signaled =
      posted.done != nullptr || posted.staged > 0 || unsignaled_ >= pair_.sends() / 4;
  if (request.is_signaled) unsignaled_ = 0;
  posted_.push_back(std::move(posted));
  return pair_.Send(request);
}

absl::StatusOr<RdmaSender::Progress> RdmaSender::Post(RdmaPacket& packet) {
  if (receives_ == 0 || !HasRoomFor(2)) return Progress::kWaits;
  std::optional<uint32_t> key;
  if (!packet.payload.empty()) {
    BRAID_ASSIGN_OR_RETURN(key, pair_.route().device->KeyInHeap(packet.payload));
  }
  while (true) {
    const std::span<const std::byte> part = NextPart(packet, key);
    const size_t left = packet.payload.size() - packet.posted;
    const bool is_last = part.size() == left;
    if ((part.empty() && left > 0) || !HasRoomFor(2) || (is_last && credits_ <= kForCredits)) {
      return Progress::kWaits;
    }
    RdmaQueuePair::Request request{
        .payload = key.has_value() ? part : Stage(part),
        .local_key = key.value_or(pair_.staging_key()),
        .remote_address = packet.key.base + packet.offset + packet.posted,
        .remote_key = static_cast<uint32_t>(packet.key.token)};
    Posted posted{.staged = key.has_value() ? 0 : part.size()};
    if (packet.done) posted.write = packet.write();
    if (is_last) {
      request.message =
          MakeMessage({.kind = packet.done ? RdmaMessage::Kind::kWrite : RdmaMessage::Kind::kFrame,
                       .write = posted.write},
                      std::span(packet.frame).first(packet.frame_bytes));
      if (key.has_value()) posted.done = std::move(packet.done);
    }
    packet.posted += part.size();
    BRAID_RETURN_IF_ERROR(PostRequest(request, std::move(posted)));
    if (is_last) return key.has_value() ? Progress::kPosted : Progress::kDone;
  }
}

absl::Status RdmaSender::PostCredits() {
  if (!OwesMany(owed_) || credits_ == 0 || !HasRoomFor(1)) return absl::OkStatus();
  return PostRequest({.message = MakeMessage({.kind = RdmaMessage::Kind::kCredits}, {})}, {});
}

absl::Status RdmaSender::PostProbe() {
  const bool is_silent = last_number_ == std::exchange(numbers_at_probe_, last_number_);
  if (!is_silent || receives_ == 0 || !HasRoomFor(1)) return absl::OkStatus();
  numbers_at_probe_ = ++last_number_;
  ++sends_;
  unsignaled_ = 0;
  posted_.push_back({.number = last_number_, .sends = 1});
  return pair_.SendProbe(last_number_);
}

absl::Status RdmaSender::Grant(uint32_t credits) {
  if (credits > receives_ - credits_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it gives back %d receives, must be at most %d", credits, receives_ - credits_));
  }
  credits_ += credits;
  return absl::OkStatus();
}

void RdmaSender::Complete(uint64_t number, WriteAnswers& answers) {
  while (!posted_.empty() && posted_.front().number <= number) {
    Posted& posted = posted_.front();
    sends_ -= posted.sends;
    released_ += posted.staged;
    answers.Add(std::move(posted.done), absl::OkStatus());
    posted_.pop_front();
  }
}

LandingWrite RdmaSender::WriteOf(uint64_t number) {
  for (size_t i = 0; i < posted_.size(); ++i) {
    if (posted_[i].number == number) return posted_[i].write;
  }
  return {};
}

void RdmaSender::Abandon(const absl::Status& reason, WriteAnswers& answers) {
  for (; !posted_.empty(); posted_.pop_front()) {
    Posted& posted = posted_.front();
    answers.Add(std::move(posted.done), reason);
  }
}

}  // namespace braid
