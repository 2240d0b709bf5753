// What one end of a tcp link hears: cuts the stream into packets, checks each before any of its
// payload is read, and puts payload straight into the region that the peer may write to.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/network/socket.h"
#include "comm/tcp/tcp_wire.h"
#include "comm/transport.h"
#include "runtime/base/mutex.h"

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

  // Any thread; as of Link.
  MemoryKey Expose(std::span<std::byte> memory);
  void Withdraw(const MemoryKey& key);

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
  absl::Status CheckWrite(const TcpHeader& header);
  bool Finish(std::span<const std::byte> frame, uint64_t payload_bytes);
  // Where the payload goes on, or an empty span if the region was withdrawn.
  std::span<std::byte> Place(const Landing& landing) const BRAID_REQUIRES(regions_mutex_);
  absl::Status WrongFrame(std::string_view what) const;

  const Ends ends_;
  const Deliver deliver_;

  // Read's own.
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;  // of the bytes at hand
  uint64_t expected_sequence_ = 0;
  std::optional<Landing> landing_;
  bool is_wanted_ = true;

  Mutex regions_mutex_;  // held while payload lands, so that Withdraw means what it says
  uint64_t last_token_ BRAID_GUARDED_BY(regions_mutex_) = 0;
  std::map<uint64_t, std::span<std::byte>> regions_ BRAID_GUARDED_BY(regions_mutex_);
};

}  // namespace braid
