// The transport between machines with RDMA over Converged Ethernet (RoCE): devices of both ends
// write straight to where payload belongs, without their processors.
#pragma once

#include <memory>

#include "comm/transport.h"

namespace braid {

// Uses options.node, reactor, interface, host, rdma and shared_heap. The transport is destroyed
// before the reactor.
std::unique_ptr<Transport> MakeRdmaTransport(const TransportOptions& options);

}  // namespace braid
