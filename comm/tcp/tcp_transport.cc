#include "comm/tcp/tcp_transport.h"

#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/tcp/tcp_dial.h"
#include "comm/tcp/tcp_greeting.h"
#include "comm/tcp/tcp_link.h"
#include "comm/tcp/tcp_port.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// Where a node listens and dials from.
struct Place {
  std::vector<SocketAddress> local;  // empty: anywhere
  bool dials_from_local = false;     // else from wherever the system wants
  std::string name;                  // for errors: "eth0"
};

// Brings the calls of both nodes together: the node with the higher number dials, the other waits.
// Lives on the transport's reactor; a link goes to its own when it is joined.
class TcpJoiner : public std::enable_shared_from_this<TcpJoiner> {
 public:
  TcpJoiner(const TransportOptions& options, const TcpCookie& cookie, Place place)
      : node_(options.node),
        cookie_(cookie),
        place_(std::move(place)),
        reactor_(*options.reactor),
        network_(options.network),
        port_(std::make_shared<TcpPort>(node_, cookie, reactor_)) {}

  const Place& place() const { return place_; }

  void Start(std::vector<Socket> listeners) {
    port_->Start(std::move(listeners), [self = shared_from_this()](uint16_t peer, Socket socket) {
      self->OnPeer(peer, std::move(socket));
    });
  }

  void Stop() {
    is_stopped_ = true;
    port_->Stop();
    for (auto& [peer, early] : early_) reactor_.Unwatch(early.descriptor());
    early_.clear();
    while (!calls_.empty()) {
      Answer(calls_.begin()->first, Stopped());
    }
  }

  void Connect(LinkRequest request, Transport::ConnectCallback done) {
    const uint16_t peer = request.peer;
    absl::StatusOr<TcpAddress> address = TcpAddress::Parse(request.peer_address);
    if (is_stopped_ || calls_.contains(peer) || !address.ok()) {
      absl::Status status = is_stopped_ ? Stopped() : address.status();
      if (status.ok()) {
        status = absl::AlreadyExistsError(
            absl::StrFormat("node %d already waits for node %d over tcp", node_, peer));
      }
      request.reactor->Post([done = std::move(done), status] { done(status); });
      return;
    }
    const Nanoseconds timeout = request.timeout;
    Call& call = calls_[peer];
    call.request = std::move(request);
    call.done = std::move(done);
    call.peer_cookie = address->cookie;
    if (node_ > peer) {
      call.dial = std::make_shared<TcpDial>(
          TcpDialOptions{
              .node = node_,
              .peer = peer,
              .peer_address = *std::move(address),
              .cookie = cookie_,
              .local = place_.dials_from_local ? place_.local : std::vector<SocketAddress>(),
              .local_name = place_.name,
              .timeout = timeout,
              .network = network_},
          reactor_, [self = shared_from_this(), peer](absl::StatusOr<Socket> socket) {
            self->Answer(peer, std::move(socket));
          });
      return call.dial->Start();
    }
    call.timer = reactor_.RunAfter(timeout, [self = shared_from_this(), peer, timeout] {
      self->Answer(peer,
                   absl::DeadlineExceededError(absl::StrFormat(
                       "node %d did not connect to node %d within %.1f s at %s", peer, self->node_,
                       static_cast<double>(timeout) / kSecond, self->place_.name)));
    });
    if (auto early = early_.extract(peer); !early.empty()) {
      reactor_.Unwatch(early.mapped().descriptor());
      Join(peer, std::move(early.mapped()));
    }
  }

 private:
  struct Call {
    LinkRequest request;
    Transport::ConnectCallback done;
    TcpCookie peer_cookie{};
    std::shared_ptr<TcpDial> dial;  // or
    std::optional<TimerId> timer;   // while it waits for the peer
    Socket joined;                  // which has not been confirmed yet
    TcpGreetingReader confirmation;
  };

  absl::Status Stopped() const {
    return absl::CancelledError(absl::StrFormat("node %d closed its tcp transport", node_));
  }

  void OnPeer(uint16_t peer, Socket socket) {
    if (calls_.contains(peer)) return Join(peer, std::move(socket));
    // Before this node's own call: kept until the peer hangs up, or dials once more.
    if (const auto old = early_.find(peer); old != early_.end()) {
      reactor_.Unwatch(old->second.descriptor());
    }
    Socket& early = early_[peer] = std::move(socket);
    const absl::Status status =
        reactor_.Watch(early.descriptor(), {.readable = true},
                       [self = shared_from_this(), peer](Reactor::Readiness) {
                         const auto found = self->early_.find(peer);
                         self->reactor_.Unwatch(found->second.descriptor());
                         self->early_.erase(found);
                       });
    if (!status.ok()) early_.erase(peer);
  }

  // Whoever dials once more has given up what it dialed before.
  void Join(uint16_t peer, Socket socket) {
    Call& call = calls_.at(peer);
    LeaveJoined(call);
    call.joined = std::move(socket);
    absl::Status status = SendTcpGreeting(call.joined, {.stage = TcpGreeting::Stage::kJoined,
                                                        .from = node_,
                                                        .to = peer,
                                                        .cookie = call.peer_cookie});
    if (status.ok()) {
      status = reactor_.Watch(
          call.joined.descriptor(), {.readable = true},
          [self = shared_from_this(), peer](Reactor::Readiness) { self->HearConfirmation(peer); });
    }
    if (!status.ok()) Lost(peer, status);
  }

  void HearConfirmation(uint16_t peer) {
    Call& call = calls_.at(peer);
    const absl::StatusOr<bool> is_complete = call.confirmation.Read(call.joined);
    if (!is_complete.ok()) return Lost(peer, is_complete.status());
    if (!*is_complete) return;
    const absl::Status status =
        CheckTcpGreeting(
            call.confirmation.bytes(),
            {.stage = TcpGreeting::Stage::kConfirmed, .from = peer, .to = node_, .cookie = cookie_})
            .status();
    if (!status.ok()) return Lost(peer, status);
    reactor_.Unwatch(call.joined.descriptor());
    Answer(peer, std::move(call.joined));
  }

  // The peer dials again.
  void Lost(uint16_t peer, const absl::Status& why) {
    VLOG(1) << "node " << node_ << " lost node " << peer << " while joining: " << why;
    LeaveJoined(calls_.at(peer));
  }

  void LeaveJoined(Call& call) {
    if (call.joined.is_open()) {
      reactor_.Unwatch(call.joined.descriptor());
      call.joined.Close();
    }
    call.confirmation = TcpGreetingReader();
  }

  void Answer(uint16_t peer, absl::StatusOr<Socket> socket) {
    auto node = calls_.extract(peer);
    Call& call = node.mapped();
    if (call.dial) call.dial->Cancel();
    if (call.timer) reactor_.CancelTimer(*call.timer);
    LeaveJoined(call);
    TcpLinkOptions options{.node = node_, .peer = peer, .reactor = call.request.reactor};
    absl::Status status = socket.status();
    if (status.ok()) status = PrepareConnection(*socket, kTcpSilenceSeconds);
    if (status.ok()) status = AllowSlowReader(*socket);
    if (status.ok()) {
      const absl::StatusOr<SocketAddress> local = socket->LocalAddress();
      const std::string interface = local.ok() ? network_->InterfaceOf(*local) : "";
      options.description = "tcp " + (interface.empty() ? place_.name : interface);
    }
    // std::function wants to be copied.
    auto owned = std::make_shared<Socket>(socket.ok() ? *std::move(socket) : Socket());
    call.request.reactor->Post([options, status, owned, done = std::move(call.done)] {
      if (!status.ok()) return done(status);
      done(MakeTcpLink(std::move(*owned), options));
    });
  }

  const uint16_t node_;
  const TcpCookie cookie_;
  const Place place_;
  Reactor& reactor_;
  Network* const network_;
  const std::shared_ptr<TcpPort> port_;
  bool is_stopped_ = false;           // what was posted before may still come
  std::map<uint16_t, Call> calls_;    // by peer, like
  std::map<uint16_t, Socket> early_;  // peers that came before the call for them
};

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
    TcpAddress address;
    BRAID_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(address.cookie))));
    Place place;
    std::vector<Socket> listeners;
    BRAID_RETURN_IF_ERROR(Bind(place, listeners, address.candidates));
    joiner_ = std::make_shared<TcpJoiner>(options_, address.cookie, place);
    auto owned = std::make_shared<std::vector<Socket>>(std::move(listeners));
    options_.reactor->Post([joiner = joiner_, owned] { joiner->Start(std::move(*owned)); });
    return address.ToString();
  }

  bool Reaches(std::string_view peer_address) const override {
    const absl::StatusOr<TcpAddress> address = TcpAddress::Parse(peer_address);
    if (!joiner_ || !address.ok()) return false;
    const std::vector<SocketAddress>& local = joiner_->place().local;
    return local.empty() || std::any_of(local.begin(), local.end(), [&](const SocketAddress& own) {
             return std::any_of(
                 address->candidates.begin(), address->candidates.end(),
                 [&](const SocketAddress& other) { return own.family() == other.family(); });
           });
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
  absl::Status Bind(Place& place, std::vector<Socket>& listeners,
                    std::vector<SocketAddress>& candidates) const;

  const TransportOptions options_;
  std::shared_ptr<TcpJoiner> joiner_;
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

absl::Status TcpTransport::Bind(Place& place, std::vector<Socket>& listeners,
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
