#include "comm/tcp/tcp_transport.h"

#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/joining/ip_place.h"
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
    BRAID_ASSIGN_OR_RETURN(const JoinPlace place, FindIpPlace(options_));
    BRAID_ASSIGN_OR_RETURN(IpListeners listeners, ListenAtPlace(place, *options_.network));
    address.candidates = std::move(listeners.candidates);
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
  const TransportOptions options_;
  std::shared_ptr<PeerJoiner> joiner_;
};

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace braid
