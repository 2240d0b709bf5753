// The transport over TCP, for IPv4 and IPv6. Works wherever nodes have an IP network in common.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace braid {

// Uses options.node, reactor, interface and host. The transport is destroyed before the reactor.
std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options);

}  // namespace braid
