// A Link over a queue pair, and the greeted TCP connection beside it: that brings what the queue
// pairs must know of each other, the reason of a close, and the end of a peer's process.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/network/socket.h"
#include "comm/rdma/rdma_route.h"
#include "comm/transport.h"

namespace braid {

struct RdmaLinkOptions {
  uint16_t node = 0;
  uint16_t peer = 0;
  RdmaRoute route;
  Reactor* reactor = nullptr;  // outlives the link
};

// On the link's reactor. Both ends begin right after their greetings. Errors: what the device
// refuses, or a limit that is reached.
absl::StatusOr<std::unique_ptr<Link>> MakeRdmaLink(Socket socket, const RdmaLinkOptions& options);

}  // namespace braid
