#include "comm/tcp/tcp_transport.h"

#include <utility>

#include "comm/joining/ip_place.h"
#include "comm/joining/joining_transport.h"
#include "comm/tcp/tcp_link.h"
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

class TcpTransport final : public JoiningTransport {
 public:
  explicit TcpTransport(const TransportOptions& options) : JoiningTransport(options) {}

  std::string_view name() const override { return "tcp"; }

  absl::StatusOr<std::string> Open() override {
    BRAID_RETURN_IF_ERROR(CheckReactor());
    BRAID_ASSIGN_OR_RETURN(const JoinPlace place, FindIpPlace(options_));
    BRAID_ASSIGN_OR_RETURN(JoinListeners listeners, ListenAtPlace(place, *options_.network));
    return Listen(
        place, std::move(listeners),
        [network = options_.network, place = place.name](Socket socket, const LinkEnds& ends) {
          return MakeLink(std::move(socket), ends, *network, place);
        });
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    return ReachesFromPlace(place(), peer_address);
  }
};

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace braid
