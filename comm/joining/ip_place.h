// Where a node listens for its peers over IP, and from where it dials them: for transports that
// begin with a TCP connection.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/joining/peer_joiner.h"
#include "comm/network/network.h"
#include "comm/transport.h"

namespace braid {

// The addresses of options.interface, or options.host; if both are empty, anywhere.
absl::StatusOr<JoinPlace> FindIpPlace(const TransportOptions& options);
// What peers can reach this node at if nothing was chosen: all addresses but loopback, or that if
// there are no others.
absl::StatusOr<std::vector<SocketAddress>> ReachableAddresses(Network& network);

// At each address of the place; of anywhere at all that there are.
absl::StatusOr<JoinListeners> ListenAtPlace(const JoinPlace& place, Network& network);

// As Transport::Reaches: whether one of the peer's addresses is of a family that the place has.
absl::Status ReachesFromPlace(const JoinPlace& place, std::string_view peer_address);

}  // namespace braid
