#include "comm/tcp/tcp_inbox.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "comm/first_packets.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Holds many small packets. A payload's beginning comes through it and is copied once more, so it
// is small beside the payloads that count.
constexpr size_t kBufferBytes = 16 << 10;
static_assert(kBufferBytes >= 2 * (kTcpHeaderBytes + kMaxCloseText));

}  // namespace

TcpInbox::TcpInbox(const Ends& ends, Deliver deliver)
    : ends_(ends), deliver_(std::move(deliver)), buffer_(new std::byte[kBufferBytes]) {}

absl::Status TcpInbox::Read() {
  bool is_drained = false;
  for (size_t total = 0; total < kReadBytes && !is_drained && is_wanted_;) {
    BRAID_ASSIGN_OR_RETURN(const size_t received, Receive(is_drained));
    total += received;
    for (bool has_more = true; has_more;) {
      BRAID_ASSIGN_OR_RETURN(has_more, Step());
    }
  }
  return absl::OkStatus();
}

template <typename Fn>
auto TcpInbox::WithPlace(const Landing& landing, const Fn& fn) const {
  const TcpHeader& header = landing.header;
  return regions_.WithRegion(header.token, [&](std::span<std::byte> region) {
    if (region.empty()) return fn(region);
    return fn(
        region.subspan(header.offset + landing.landed, header.payload_bytes - landing.landed));
  });
}

// One call for the rest of a payload and what follows it.
absl::StatusOr<size_t> TcpInbox::Receive(bool& is_drained) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (kBufferBytes - end_ < kTcpHeaderBytes + kMaxCloseText) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  size_t landed = 0, wanted = 0;
  const auto read = [&](std::span<std::byte> place) {
    iovec parts[2];
    size_t count = 0;
    landed = std::min(place.size(), kReadBytes);
    if (landed > 0) parts[count++] = {place.data(), landed};
    // What follows the payload, unless that has more parts.
    if (landed == place.size()) {
      parts[count++] = {buffer_.get() + end_, kBufferBytes - end_};
    }
    for (size_t i = 0; i < count; ++i) wanted += parts[i].iov_len;
    return ends_.socket->ReadParts(std::span(parts).first(count));
  };
  const IoResult received = landing_ ? WithPlace(*landing_, read) : read({});
  is_drained = received.bytes < wanted;
  if (received.is_blocked()) return 0;
  if (received.error != 0) return absl::UnavailableError(received.ErrorText());
  if (received.bytes == 0) {
    const bool is_within = landing_ || begin_ != end_;
    return absl::UnavailableError(absl::StrFormat("connection closed by the peer%s",
                                                  is_within ? " in the middle of a frame" : ""));
  }
  landed = std::min(landed, received.bytes);
  if (landing_) landing_->landed += landed;
  end_ += received.bytes - landed;
  return received.bytes;
}

absl::StatusOr<bool> TcpInbox::Step() {
  if (landing_) return StepInPayload();
  const std::span<const std::byte> bytes(buffer_.get() + begin_, end_ - begin_);
  if (bytes.size() < kTcpHeaderBytes) return false;
  const absl::StatusOr<TcpHeader> header = ReadTcpHeader(bytes.first(kTcpHeaderBytes));
  if (!header.ok()) return WrongFrame(std::string(header.status().message()));
  const size_t packet_bytes = kTcpHeaderBytes + header->frame_bytes;
  if (bytes.size() < packet_bytes) return false;
  if (absl::Status status = CheckTcpChecksum(bytes.first(packet_bytes)); !status.ok()) {
    return WrongFrame(std::string(status.message()));
  }
  if (header->sequence != expected_sequence_) {
    return WrongFrame(absl::StrFormat("it has sequence number %d, must be %d", header->sequence,
                                      expected_sequence_));
  }
  ++expected_sequence_;
  begin_ += packet_bytes;
  const std::span<const std::byte> frame = bytes.subspan(kTcpHeaderBytes, header->frame_bytes);
  switch (header->kind) {
    case TcpHeader::Kind::kFrame:
      return Finish(frame, 0);
    case TcpHeader::Kind::kClose:
      return absl::CancelledError(
          std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
    case TcpHeader::Kind::kWrite:
      break;
  }
  BRAID_RETURN_IF_ERROR(CheckWrite(*header));
  landing_.emplace(*header);
  std::memcpy(landing_->frame.data(), frame.data(), frame.size());
  return true;
}

// The part of the payload that came into the buffer along with the header.
absl::StatusOr<bool> TcpInbox::StepInPayload() {
  const TcpHeader& header = landing_->header;
  const size_t at_hand = std::min<uint64_t>(end_ - begin_, header.payload_bytes - landing_->landed);
  if (at_hand > 0) {
    WithPlace(*landing_, [&](std::span<std::byte> place) {
      if (!place.empty()) std::memcpy(place.data(), buffer_.get() + begin_, at_hand);
    });
  }
  begin_ += at_hand;
  landing_->landed += at_hand;
  if (landing_->landed < header.payload_bytes) return false;
  const Landing landing = *landing_;
  landing_.reset();
  return Finish(std::span(landing.frame).first(landing.header.frame_bytes),
                landing.header.payload_bytes);
}

absl::Status TcpInbox::CheckWrite(const TcpHeader& header) const {
  const absl::Status status = regions_.Check(
      {.token = header.token, .offset = header.offset, .bytes = header.payload_bytes}, ends_.node);
  return status.ok() ? status : WrongFrame(std::string(status.message()));
}

bool TcpInbox::Finish(std::span<const std::byte> frame, uint64_t payload_bytes) {
  is_wanted_ = deliver_(frame, payload_bytes);
  return is_wanted_;
}

absl::Status TcpInbox::WrongFrame(std::string_view what) const {
  return WrongFrameOf(ends_.peer, absl::InvalidArgumentError(std::string(what)));
}

}  // namespace braid
