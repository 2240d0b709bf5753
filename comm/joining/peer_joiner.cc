#include "comm/joining/peer_joiner.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace braid {

PeerJoiner::PeerJoiner(PeerJoinerOptions options, MakeLinkOfSocket make_link)
    : options_(std::move(options)),
      make_link_(std::move(make_link)),
      reactor_(*options_.reactor),
      port_(std::make_shared<DataPort>(options_.node, options_.cookie, reactor_)) {}

void PeerJoiner::Start(std::vector<Socket> listeners) {
  port_->Start(std::move(listeners), [self = shared_from_this()](uint16_t peer, Socket socket) {
    self->OnPeer(peer, std::move(socket));
  });
}

void PeerJoiner::Stop() {
  is_stopped_ = true;
  port_->Stop();
  for (auto& [peer, early] : early_) reactor_.Unwatch(early.descriptor());
  early_.clear();
  while (!calls_.empty()) {
    Answer(calls_.begin()->first, Stopped());
  }
}

void PeerJoiner::Connect(LinkRequest request, Transport::ConnectCallback done) {
  const uint16_t peer = request.peer;
  absl::StatusOr<NodeAddress> address = NodeAddress::Parse(request.peer_address);
  if (is_stopped_ || calls_.contains(peer) || !address.ok()) {
    absl::Status status = is_stopped_ ? Stopped() : address.status();
    if (status.ok()) {
      status = absl::AlreadyExistsError(absl::StrFormat("node %d already waits for node %d over %s",
                                                        options_.node, peer, options_.transport));
    }
    request.reactor->Post([done = std::move(done), status] { done(status); });
    return;
  }
  const Nanoseconds timeout = request.timeout;
  Call& call = calls_[peer];
  call.request = std::move(request);
  call.done = std::move(done);
  call.peer_cookie = address->cookie;
  if (options_.node > peer) {
    call.dial = std::make_shared<PeerDial>(
        PeerDialOptions{.node = options_.node,
                        .peer = peer,
                        .peer_address = *std::move(address),
                        .cookie = options_.cookie,
                        .local = options_.place.dials_from_local ? options_.place.local
                                                                 : std::vector<SocketAddress>(),
                        .local_name = options_.place.name,
                        .timeout = timeout,
                        .network = options_.network},
        reactor_, [self = shared_from_this(), peer](absl::StatusOr<Socket> socket) {
          self->Answer(peer, std::move(socket));
        });
    return call.dial->Start();
  }
  call.timer = reactor_.RunAfter(timeout, [self = shared_from_this(), peer, timeout] {
    self->Answer(peer, absl::DeadlineExceededError(absl::StrFormat(
                           "node %d did not connect to node %d within %.1f s at %s", peer,
                           self->options_.node, static_cast<double>(timeout) / kSecond,
                           self->options_.place.name)));
  });
  if (auto early = early_.extract(peer); !early.empty()) {
    reactor_.Unwatch(early.mapped().descriptor());
    Join(peer, std::move(early.mapped()));
  }
}

absl::Status PeerJoiner::Stopped() const {
  return absl::CancelledError(
      absl::StrFormat("node %d closed its %s transport", options_.node, options_.transport));
}

void PeerJoiner::OnPeer(uint16_t peer, Socket socket) {
  if (calls_.contains(peer)) return Join(peer, std::move(socket));
  // Before this node's own call: kept until the peer hangs up, or dials once more.
  if (const auto old = early_.find(peer); old != early_.end()) {
    reactor_.Unwatch(old->second.descriptor());
  }
  Socket& early = early_[peer] = std::move(socket);
  const absl::Status status = reactor_.Watch(early.descriptor(), {.readable = true},
                                             [self = shared_from_this(), peer](Reactor::Readiness) {
                                               const auto found = self->early_.find(peer);
                                               self->reactor_.Unwatch(found->second.descriptor());
                                               self->early_.erase(found);
                                             });
  if (!status.ok()) early_.erase(peer);
}

// Whoever dials once more has given up what it dialed before.
void PeerJoiner::Join(uint16_t peer, Socket socket) {
  Call& call = calls_.at(peer);
  LeaveJoined(call);
  call.joined = std::move(socket);
  absl::Status status = SendNodeGreeting(call.joined, {.stage = NodeGreeting::Stage::kJoined,
                                                       .from = options_.node,
                                                       .to = peer,
                                                       .cookie = call.peer_cookie});
  if (status.ok()) {
    status = reactor_.Watch(
        call.joined.descriptor(), {.readable = true},
        [self = shared_from_this(), peer](Reactor::Readiness) { self->HearConfirmation(peer); });
  }
  if (!status.ok()) Lost(peer, status);
}

void PeerJoiner::HearConfirmation(uint16_t peer) {
  Call& call = calls_.at(peer);
  const absl::StatusOr<bool> is_complete = call.confirmation.Read(call.joined);
  if (!is_complete.ok()) return Lost(peer, is_complete.status());
  if (!*is_complete) return;
  const absl::Status status =
      CheckNodeGreeting(call.confirmation.bytes(), {.stage = NodeGreeting::Stage::kConfirmed,
                                                    .from = peer,
                                                    .to = options_.node,
                                                    .cookie = options_.cookie})
          .status();
  if (!status.ok()) return Lost(peer, status);
  reactor_.Unwatch(call.joined.descriptor());
  Answer(peer, std::move(call.joined));
}

// The peer dials again.
void PeerJoiner::Lost(uint16_t peer, const absl::Status& why) {
  VLOG(1) << "node " << options_.node << " lost node " << peer << " while joining: " << why;
  LeaveJoined(calls_.at(peer));
}

void PeerJoiner::LeaveJoined(Call& call) {
  if (call.joined.is_open()) {
    reactor_.Unwatch(call.joined.descriptor());
    call.joined.Close();
  }
  call.confirmation = NodeGreetingReader();
}

void PeerJoiner::Answer(uint16_t peer, absl::StatusOr<Socket> socket) {
  auto node = calls_.extract(peer);
  Call& call = node.mapped();
  if (call.dial) call.dial->Cancel();
  if (call.timer) reactor_.CancelTimer(*call.timer);
  LeaveJoined(call);
  // std::function wants to be copied.
  auto owned = std::make_shared<absl::StatusOr<Socket>>(std::move(socket));
  const LinkEnds ends{.node = options_.node, .peer = peer, .reactor = call.request.reactor};
  ends.reactor->Post([ends, owned, make_link = make_link_, done = std::move(call.done)] {
    if (!owned->ok()) return done(owned->status());
    done(make_link(*std::move(*owned), ends));
  });
}

}  // namespace braid
