#include "comm/shm/shm_transport.h"

#include <unistd.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/joining/node_greeting.h"
#include "comm/joining/peer_joiner.h"
#include "comm/network/this_machine.h"
#include "comm/shm/shm_link.h"
#include "comm/shm/shm_segment.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What an address begins with: peers with another one share no memory with this process.
std::string PlaceOfThis() { return absl::StrFormat("%s user %d", ThisMachine(), geteuid()); }

constexpr char kSeparator = '/';

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportOptions& options)
      : options_(options), place_(PlaceOfThis()) {}

  // At once on the reactor's thread, which may end before it gets to what is posted now.
  ~ShmTransport() override {
    if (!joiner_) return;
    if (options_.reactor->InThread()) {
      joiner_->Stop();
    } else {
      options_.reactor->Post([joiner = joiner_] { joiner->Stop(); });
    }
  }

  std::string_view name() const override { return "shm"; }
  bool lends() const override { return true; }

  absl::StatusOr<std::string> Open() override {
    CHECK(!joiner_) << "a transport is opened once";
    if (options_.reactor == nullptr) {
      return absl::FailedPreconditionError("shm needs a reactor, and none was given");
    }
    if (options_.network != SystemNetwork()) {
      return absl::FailedPreconditionError("shm needs the system's own sockets");
    }
    BRAID_RETURN_IF_ERROR(ShmSegment::Make().status());
    NodeAddress address;
    BRAID_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(address.cookie))));
    BRAID_ASSIGN_OR_RETURN(const std::string name, MakeSecret());
    BRAID_ASSIGN_OR_RETURN(SocketAddress own,
                           SocketAddress::OfMachine(absl::StrCat("braid-", name)));
    auto listeners = std::make_shared<std::vector<Socket>>();
    BRAID_ASSIGN_OR_RETURN(Socket listener, options_.network->ListenOn(own));
    listeners->push_back(std::move(listener));
    address.candidates.push_back(own);
    joiner_ = std::make_shared<PeerJoiner>(
        PeerJoinerOptions{.node = options_.node,
                          .transport = std::string(this->name()),
                          .cookie = address.cookie,
                          .place = {.name = "this machine"},
                          .reactor = options_.reactor,
                          .network = options_.network},
        [heap = options_.shared_heap](Socket socket, const LinkEnds& ends) {
          return MakeShmLink(
              std::move(socket),
              {.node = ends.node, .peer = ends.peer, .reactor = ends.reactor, .heap = heap});
        });
    options_.reactor->Post([joiner = joiner_, listeners] { joiner->Start(std::move(*listeners)); });
    return absl::StrCat(place_, std::string(1, kSeparator), address.ToString());
  }

  absl::Status Reaches(std::string_view peer_address) const override {
    if (AddressIn(peer_address).has_value()) return absl::OkStatus();
    return absl::UnavailableError(
        "it is of another machine, network namespace or user, and shares no memory with this one");
  }

  void Connect(LinkRequest request, ConnectCallback done) override {
    CHECK(request.reactor && done);
    CHECK_NE(options_.node, request.peer) << "a node needs no link to itself";
    CHECK(joiner_) << "a transport is opened before it connects";
    request.peer_address = AddressIn(request.peer_address).value_or("");
    options_.reactor->Post(
        [joiner = joiner_, request = std::move(request), done = std::move(done)]() mutable {
          joiner->Connect(std::move(request), std::move(done));
        });
  }

 private:
  // What a joiner dials; none if the peer is elsewhere.
  std::optional<std::string> AddressIn(std::string_view peer_address) const {
    const size_t separator = peer_address.find(kSeparator);
    if (separator == std::string_view::npos) return std::nullopt;
    if (peer_address.substr(0, separator) != std::string_view(place_)) return std::nullopt;
    return std::string(peer_address.substr(separator + 1));
  }

  const TransportOptions options_;
  const std::string place_;
  std::shared_ptr<PeerJoiner> joiner_;
};

}  // namespace

std::unique_ptr<Transport> MakeShmTransport(const TransportOptions& options) {
  return std::make_unique<ShmTransport>(options);
}

}  // namespace braid
