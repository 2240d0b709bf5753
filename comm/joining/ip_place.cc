#include "comm/joining/ip_place.h"

#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/joining/node_greeting.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<JoinPlace> FindIpPlace(const TransportOptions& options) {
  Network& network = *options.network;
  JoinPlace place{.name = "any interface"};
  if (!options.interface.empty()) {
    place.name = options.interface;
    place.dials_from_local = true;
    BRAID_ASSIGN_OR_RETURN(place.local, network.InterfaceAddresses(options.interface));
    std::erase_if(place.local, [](const SocketAddress& own) { return own.is_link_local(); });
    if (place.local.empty()) {
      return absl::NotFoundError(absl::StrFormat(
          "interface '%s' has link-local addresses only; give it one that peers can reach",
          options.interface));
    }
  } else if (!options.host.empty()) {
    place.name = options.host;
    BRAID_ASSIGN_OR_RETURN(place.local, network.ResolveHost(options.host, 0));
  }
  return place;
}

absl::StatusOr<std::vector<SocketAddress>> ReachableAddresses(Network& network) {
  BRAID_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, network.LocalAddresses());
  std::erase_if(addresses, [](const SocketAddress& own) { return own.is_link_local(); });
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const SocketAddress& address) { return !address.is_loopback(); });
  if (!addresses.empty() && !addresses.front().is_loopback()) {
    std::erase_if(addresses, [](const SocketAddress& address) { return address.is_loopback(); });
  }
  return addresses;
}

absl::StatusOr<JoinListeners> ListenAtPlace(const JoinPlace& place, Network& network) {
  JoinListeners listeners;
  const auto listen = [&](const SocketAddress& address) -> absl::StatusOr<SocketAddress> {
    BRAID_ASSIGN_OR_RETURN(Socket socket, network.ListenOn(address));
    BRAID_ASSIGN_OR_RETURN(const SocketAddress bound, socket.LocalAddress());
    listeners.sockets.push_back(std::move(socket));
    return bound;
  };
  for (const SocketAddress& local : place.local) {
    BRAID_ASSIGN_OR_RETURN(const SocketAddress bound, listen(local));
    listeners.candidates.push_back(bound);
  }
  if (!place.local.empty()) return listeners;
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ReachableAddresses(network));
  std::optional<SocketAddress> any[2];  // of IPv4 and IPv6, bound when first needed
  for (const SocketAddress& address : addresses) {
    const bool is_v6 = address.family() == AF_INET6;
    if (!any[is_v6]) {
      BRAID_ASSIGN_OR_RETURN(const SocketAddress wanted,
                             SocketAddress::Parse(is_v6 ? "[::]:0" : "0.0.0.0:0"));
      BRAID_ASSIGN_OR_RETURN(any[is_v6], listen(wanted));
    }
    listeners.candidates.push_back(address.WithPort(any[is_v6]->port()));
  }
  if (listeners.candidates.empty()) {
    return absl::NotFoundError("this node has no IP address: no interface is up");
  }
  return listeners;
}

absl::Status ReachesFromPlace(const JoinPlace& place, std::string_view peer_address) {
  BRAID_ASSIGN_OR_RETURN(const NodeAddress address, NodeAddress::Parse(peer_address));
  for (const SocketAddress& other : address.candidates) {
    const int family = other.family();
    if (family != AF_INET && family != AF_INET6) {
      return absl::InvalidArgumentError(other.ToString() + " is no IP address");
    }
    if (place.local.empty() ||
        std::ranges::find(place.local, family, &SocketAddress::family) != place.local.end()) {
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError("it has no address of a family that " + place.name +
                                " has: IPv4 or IPv6");
}

}  // namespace braid
