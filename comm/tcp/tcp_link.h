// A Link over one connected TCP socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/network/socket.h"
#include "comm/transport.h"

namespace braid {

// How long one end may be silent before the other takes the pair for broken.
constexpr int kTcpSilenceSeconds = 5;

struct TcpLinkOptions {
  uint16_t node = 0;
  uint16_t peer = 0;
  std::string description;     // "tcp eth0"
  Reactor* reactor = nullptr;  // outlives the link
};

// On the link's reactor. Both ends begin right after their greetings.
std::unique_ptr<Link> MakeTcpLink(Socket socket, const TcpLinkOptions& options);

}  // namespace braid
