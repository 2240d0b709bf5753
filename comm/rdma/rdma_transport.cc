#include "comm/rdma/rdma_transport.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/control/secret.h"
#include "comm/joining/ip_place.h"
#include "comm/joining/node_greeting.h"
#include "comm/joining/peer_joiner.h"
#include "comm/rdma/rdma_link.h"
#include "comm/rdma/rdma_route.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// As of tcp: how long the peer's machine may be silent.
constexpr int kNotesSilenceSeconds = 5;

// The ways out of this machine, of which each pair takes the one that its connection does.
struct RdmaWays {
  std::vector<RdmaRoute> routes;
  std::optional<RdmaRoute> only;  // whatever the connection's address
};

absl::StatusOr<std::unique_ptr<Link>> MakeLinkOn(const RdmaWays& ways, Socket socket,
                                                 const LinkEnds& ends) {
  BRAID_RETURN_IF_ERROR(PrepareConnection(socket, kNotesSilenceSeconds));
  BRAID_ASSIGN_OR_RETURN(const SocketAddress local, socket.LocalAddress());
  const RdmaRoute* const route =
      ways.only.has_value() ? &*ways.only : RdmaRouteFrom(ways.routes, local);
  if (route == nullptr) {
    return absl::UnavailableError(
        absl::StrFormat("the connection to node %d leaves from %s, which no RDMA port has",
                        ends.peer, local.host()));
  }
  return MakeRdmaLink(
      std::move(socket),
      {.node = ends.node, .peer = ends.peer, .route = *route, .reactor = ends.reactor});
}

class RdmaTransport final : public Transport {
 public:
  explicit RdmaTransport(const TransportOptions& options) : options_(options) {}

  // At once on the reactor's thread, which may end before it gets to what is posted now.
  ~RdmaTransport() override {
    if (!joiner_) return;
    if (options_.reactor->InThread()) {
      joiner_->Stop();
    } else {
      options_.reactor->Post([joiner = joiner_] { joiner->Stop(); });
    }
  }

  std::string_view name() const override { return "rdma"; }

  absl::StatusOr<std::string> Open() override {
    CHECK(!joiner_) << "a transport is opened once";
    if (options_.reactor == nullptr) {
      return absl::FailedPreconditionError("rdma needs a reactor, and none was given");
    }
    if (options_.network != SystemNetwork()) {
      return absl::FailedPreconditionError("rdma needs the system's own sockets");
    }
    RdmaWays ways;
    BRAID_ASSIGN_OR_RETURN(ways.routes, FindRdmaRoutes(options_.rdma, options_.shared_heap));
    BRAID_ASSIGN_OR_RETURN(JoinPlace place, FindIpPlace(options_));
    BRAID_RETURN_IF_ERROR(ChooseWays(ways, place));
    NodeAddress address;
    BRAID_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(address.cookie))));
    BRAID_ASSIGN_OR_RETURN(IpListeners listeners, ListenAtPlace(place, *options_.network));
    address.candidates = std::move(listeners.candidates);
    joiner_ =
        std::make_shared<PeerJoiner>(PeerJoinerOptions{.node = options_.node,
                                                       .transport = std::string(name()),
                                                       .cookie = address.cookie,
                                                       .place = place,
                                                       .reactor = options_.reactor,
                                                       .network = options_.network},
                                     [ways = std::move(ways)](Socket socket, const LinkEnds& ends) {
                                       return MakeLinkOn(ways, std::move(socket), ends);
                                     });
    auto owned = std::make_shared<std::vector<Socket>>(std::move(listeners.sockets));
    options_.reactor->Post([joiner = joiner_, owned] { joiner->Start(std::move(*owned)); });
    return address.ToString();
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    return ReachesFromPlace(joiner_->place(), peer_address);
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
  // Connections are made between addresses that RDMA ports have. If no GID stands for an address,
  // or the one that was chosen stands for none of this machine, they may be any, and all links
  // leave by that GID.
  absl::Status ChooseWays(RdmaWays& ways, JoinPlace& place) const {
    std::vector<SocketAddress> addresses = place.local;
    if (addresses.empty()) {
      BRAID_ASSIGN_OR_RETURN(addresses, ReachableAddresses(*options_.network));
    }
    std::vector<SocketAddress> with_port;
    for (const SocketAddress& address : addresses) {
      if (RdmaRouteFrom(ways.routes, address) != nullptr) with_port.push_back(address);
    }
    if (!with_port.empty()) {
      place.local = std::move(with_port);
      place.dials_from_local = true;
      return absl::OkStatus();
    }
    if (options_.rdma.gid >= 0 || std::ranges::all_of(ways.routes, &RdmaRoute::is_link_local)) {
      ways.only = ways.routes.front();
      return absl::OkStatus();
    }
    const auto add = [](std::string* text, const auto& part) { text->append(part.ToString()); };
    const auto add_host = [](std::string* text, const SocketAddress& part) {
      text->append(part.host());
    };
    return absl::NotFoundError(absl::StrFormat(
        "no RDMA port has an address of %s (%s); there are %s: choose one by --interface",
        place.name, absl::StrJoin(addresses, ", ", add_host),
        absl::StrJoin(ways.routes, ", ", add)));
  }

  const TransportOptions options_;
  std::shared_ptr<PeerJoiner> joiner_;
};

}  // namespace

std::unique_ptr<Transport> MakeRdmaTransport(const TransportOptions& options) {
  return std::make_unique<RdmaTransport>(options);
}

}  // namespace braid
