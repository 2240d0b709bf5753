#include "comm/tcp/tcp_transport.h"

#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/joining/node_greeting.h"
#include "comm/joining/peer_joiner.h"
#include "comm/tcp/tcp_link.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

absl::StatusOr<std::unique_ptr<Link>> MakeLink(Socket socket, const LinkEnds& ends,
                                               Network& network, const std::string& place) {
  BRAID_RETURN_IF_ERROR(PrepareConnection(socket, kTcpSilenceSeconds));
  BRAID_RETURN_IF_ERROR(AllowSlowReader(socket));
  const absl::StatusOr<SocketAddress> local = socket.LocalAddress();
  const std::string interface = local.ok() ? network.InterfaceOf(*local) : "";
  return MakeTcpLink(std::move(socket),
                     {.node = ends.node,
                      .peer = ends.peer,
                      .description = "tcp " + (interface.empty() ? place : interface),
                      .reactor = ends.reactor});
}

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TransportOptions& options) : options_(options) {}

  // At once on the reactor's thread, which may end before it gets to what is posted now.
  ~TcpTransport() override {
    if (!joiner_) return;
    if (options_.reactor->InThread()) {
      joiner_->Stop();
    } else {
      options_.reactor->Post([joiner = joiner_] { joiner->Stop(); });
    }
  }

  std::string_view name() const override { return "tcp"; }

  absl::StatusOr<std::string> Open() override {
    CHECK(!joiner_) << "a transport is opened once";
    if (options_.reactor == nullptr) {
      return absl::FailedPreconditionError("tcp needs a reactor, and none was given");
    }
    NodeAddress address;
    BRAID_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(address.cookie))));
    JoinPlace place;
    std::vector<Socket> listeners;
    BRAID_RETURN_IF_ERROR(Bind(place, listeners, address.candidates));
    joiner_ = std::make_shared<PeerJoiner>(
        PeerJoinerOptions{.node = options_.node,
                          .transport = std::string(name()),
                          .cookie = address.cookie,
                          .place = place,
                          .reactor = options_.reactor,
                          .network = options_.network},
        [network = options_.network, place = place.name](Socket socket, const LinkEnds& ends) {
          return MakeLink(std::move(socket), ends, *network, place);
        });
    auto owned = std::make_shared<std::vector<Socket>>(std::move(listeners));
    options_.reactor->Post([joiner = joiner_, owned] { joiner->Start(std::move(*owned)); });
    return address.ToString();
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    BRAID_ASSIGN_OR_RETURN(const NodeAddress address, NodeAddress::Parse(peer_address));
    const std::vector<SocketAddress>& local = joiner_->place().local;
    for (const SocketAddress& other : address.candidates) {
      const int family = other.family();
      if (family != AF_INET && family != AF_INET6) {
        return absl::InvalidArgumentError(other.ToString() + " is no IP address");
      }
      if (local.empty() ||
          std::ranges::find(local, family, &SocketAddress::family) != local.end()) {
        return absl::OkStatus();
      }
    }
    return absl::UnavailableError("it has no address of a family that " + joiner_->place().name +
                                  " has: IPv4 or IPv6");
  }

  void Connect(LinkRequest request, ConnectCallback done) override {
    CHECK(request.reactor && done);
    CHECK_NE(options_.node, request.peer) << "a node needs no link to itself";
    CHECK(joiner_) << "a transport is opened before it connects";
    options_.reactor->Post(
        [joiner = joiner_, request = std::move(request), done = std::move(done)]() mutable {
          joiner->Connect(std::move(request), std::move(done));
        });
  }

 private:
  absl::Status Bind(JoinPlace& place, std::vector<Socket>& listeners,
                    std::vector<SocketAddress>& candidates) const;

  const TransportOptions options_;
  std::shared_ptr<PeerJoiner> joiner_;
};

// Link-local addresses mean another network on every interface; a peer cannot know which.
bool IsLinkLocal(const SocketAddress& address) {
  return address.family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
}

// What this node can be reached at if nothing was chosen: all but loopback, or that if it is all.
absl::StatusOr<std::vector<SocketAddress>> ReachableAddresses(Network& network) {
  BRAID_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, network.LocalAddresses());
  std::erase_if(addresses, IsLinkLocal);
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const SocketAddress& address) { return !address.is_loopback(); });
  if (!addresses.empty() && !addresses.front().is_loopback()) {
    std::erase_if(addresses, [](const SocketAddress& address) { return address.is_loopback(); });
  }
  return addresses;
}

absl::Status TcpTransport::Bind(JoinPlace& place, std::vector<Socket>& listeners,
                                std::vector<SocketAddress>& candidates) const {
  Network& network = *options_.network;
  const auto listen = [&](const SocketAddress& address) -> absl::StatusOr<SocketAddress> {
    BRAID_ASSIGN_OR_RETURN(Socket socket, network.ListenOn(address));
    BRAID_ASSIGN_OR_RETURN(const SocketAddress bound, socket.LocalAddress());
    listeners.push_back(std::move(socket));
    return bound;
  };
  if (!options_.interface.empty()) {
    place.name = options_.interface;
    place.dials_from_local = true;
    BRAID_ASSIGN_OR_RETURN(place.local, network.InterfaceAddresses(options_.interface));
    std::erase_if(place.local, IsLinkLocal);
    if (place.local.empty()) {
      return absl::NotFoundError(absl::StrFormat(
          "interface '%s' has link-local addresses only; give it one that peers can reach",
          options_.interface));
    }
  } else if (!options_.host.empty()) {
    place.name = options_.host;
    BRAID_ASSIGN_OR_RETURN(place.local, network.ResolveHost(options_.host, 0));
  }
  for (const SocketAddress& local : place.local) {
    BRAID_ASSIGN_OR_RETURN(const SocketAddress bound, listen(local));
    candidates.push_back(bound);
  }
  if (!candidates.empty()) return absl::OkStatus();
  place.name = "any interface";
  BRAID_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ReachableAddresses(network));
  std::optional<SocketAddress> any[2];  // of IPv4 and IPv6, bound when first needed
  for (const SocketAddress& address : addresses) {
    const bool is_v6 = address.family() == AF_INET6;
    if (!any[is_v6]) {
      BRAID_ASSIGN_OR_RETURN(const SocketAddress wanted,
                             SocketAddress::Parse(is_v6 ? "[::]:0" : "0.0.0.0:0"));
      BRAID_ASSIGN_OR_RETURN(any[is_v6], listen(wanted));
    }
    candidates.push_back(address.WithPort(any[is_v6]->port()));
  }
  if (candidates.empty()) {
    return absl::NotFoundError("this node has no IP address: no interface is up");
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace braid
