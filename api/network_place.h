// Where a node of a network listens, and how it reaches the master: what the session on the master
// and the service on the other nodes have in common.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/network.h"
#include "comm/control/rendezvous.h"
#include "comm/network/network.h"
#include "comm/network/socket.h"

namespace braid {

Network& SocketsOf(const NetworkOptions& network);

// UNAUTHENTICATED without a secret at an address that others could reach: whoever reaches the port
// may run what he likes here.
absl::Status CheckExposure(const NetworkOptions& network, const SocketAddress& address);

// Not where a meeting file says it, which RendezvousOptionsOf sees to.
absl::StatusOr<WayToMaster> FindMaster(const NetworkOptions& network);

// What the master tells others of where it listens: where it does so at all addresses, those of
// this machine that other machines may reach, if there are any.
absl::StatusOr<std::vector<SocketAddress>> AddressesForOthers(const std::vector<Socket>& listeners,
                                                              Network& sockets);

}  // namespace braid
