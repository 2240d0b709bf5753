// The transport between processes of one machine, network namespace and user, through memory that
// both map.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace braid {

// Uses options.node, reactor and shared_heap. The transport is destroyed before the reactor.
std::unique_ptr<Transport> MakeShmTransport(const TransportOptions& options);

}  // namespace braid
