// What one end of a tcp link hears: cuts the stream into packets, checks each before any of its
// payload is read, and puts payload straight into the region that the peer may write to.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/landing_regions.h"
#include "comm/network/socket.h"
#include "comm/tcp/tcp_wire.h"
#include "comm/transport.h"

namespace braid {

class TcpInbox {
 public:
  // Takes a frame whose payload has landed; false: no more, the link is closing.
  using Deliver = std::function<bool(std::span<const std::byte> frame, uint64_t payload_bytes)>;

  struct Ends {
    const Socket* socket = nullptr;  // open whenever Read is called
    uint16_t node = 0;               // this one
    uint16_t peer = 0;
  };
  TcpInbox(const Ends& ends, Deliver deliver);

  // Where payload lands.
  LandingRegions& regions() { return regions_; }

  // On one thread: what there is, but no more than a bounded amount. OK: what is left shows by the
  // descriptor being readable. INVALID_ARGUMENT: the peer broke the rules. Else the connection's
  // end: UNAVAILABLE, or CANCELLED with the reason that the peer gave for closing the link.
  absl::Status Read();

 private:
  struct Landing {  // a Write whose payload is on the way
    explicit Landing(const TcpHeader& header) : header(header) {}
    TcpHeader header;
    uint64_t landed = 0;
    std::array<std::byte, kMaxFrameBytes> frame;
  };

  absl::StatusOr<size_t> Receive(bool& is_drained);
  // Takes one step with the bytes at hand; false: it needs more of them, or nobody wants them.
  absl::StatusOr<bool> Step();
  absl::StatusOr<bool> StepInPayload();
  absl::Status CheckWrite(const TcpHeader& header) const;
  bool Finish(std::span<const std::byte> frame, uint64_t payload_bytes);
  // Calls `fn` with where the payload goes on, or with no bytes if the region was withdrawn.
  template <typename Fn>
  auto WithPlace(const Landing& landing, const Fn& fn) const;
  absl::Status WrongFrame(std::string_view what) const;

  const Ends ends_;
  const Deliver deliver_;

  // Read's own.
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;  // of the bytes at hand
  uint64_t expected_sequence_ = 0;
  std::optional<Landing> landing_;
  bool is_wanted_ = true;

  LandingRegions regions_;
};

}  // namespace braid
