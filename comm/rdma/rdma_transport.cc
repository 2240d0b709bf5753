#include "comm/rdma/rdma_transport.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm/joining/ip_place.h"
#include "comm/joining/joining_transport.h"
#include "comm/rdma/rdma_link.h"
#include "comm/rdma/rdma_route.h"
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

class RdmaTransport final : public JoiningTransport {
 public:
  explicit RdmaTransport(const TransportOptions& options) : JoiningTransport(options) {}

  std::string_view name() const override { return "rdma"; }

  absl::StatusOr<std::string> Open() override {
    BRAID_RETURN_IF_ERROR(CheckReactor());
    BRAID_RETURN_IF_ERROR(CheckSystemNetwork());
    RdmaWays ways;
    BRAID_ASSIGN_OR_RETURN(ways.routes, FindRdmaRoutes(options_.rdma, options_.shared_heap));
    BRAID_ASSIGN_OR_RETURN(JoinPlace place, FindIpPlace(options_));
    BRAID_RETURN_IF_ERROR(ChooseWays(ways, place));
    BRAID_ASSIGN_OR_RETURN(JoinListeners listeners, ListenAtPlace(place, *options_.network));
    return Listen(std::move(place), std::move(listeners),
                  [ways = std::move(ways)](Socket socket, const LinkEnds& ends) {
                    return MakeLinkOn(ways, std::move(socket), ends);
                  });
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    return ReachesFromPlace(place(), peer_address);
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
    const bool are_link_local = std::ranges::all_of(
        ways.routes, [](const RdmaRoute& route) { return route.address.is_link_local(); });
    if (options_.rdma.gid >= 0 || are_link_local) {
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
};

}  // namespace

std::unique_ptr<Transport> MakeRdmaTransport(const TransportOptions& options) {
  return std::make_unique<RdmaTransport>(options);
}

}  // namespace braid
