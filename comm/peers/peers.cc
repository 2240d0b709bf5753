#include "comm/peers/peers.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace braid {

Peers::Peers(Options options) : options_(std::move(options)) {}

Peers::~Peers() { *is_alive_ = false; }

std::vector<TransportAddress> Peers::Open(std::vector<std::unique_ptr<Transport>> transports) {
  CHECK(transports_.empty()) << "transports are opened once";
  std::vector<TransportAddress> addresses;
  for (std::unique_ptr<Transport>& transport : transports) {
    const absl::StatusOr<std::string> address = transport->Open();
    if (!address.ok()) {
      VLOG(1) << "transport " << transport->name() << ": " << address.status();
      refused_ += absl::StrFormat("; %s does not work here: %s", std::string(transport->name()),
                                  std::string(address.status().message()));
      continue;
    }
    addresses.push_back({std::string(transport->name()), *address});
    transports_.push_back(std::move(transport));
  }
  return addresses;
}

void Peers::SetAddresses(uint16_t peer, std::vector<TransportAddress> addresses) {
  peers_[peer].addresses = std::move(addresses);
}

void Peers::SetReceiver(Channel channel, Receiver receiver) {
  CHECK(channel != Channel::kCheck && channel != Channel::kPayload) << "used here or by links";
  const bool is_new = receivers_.emplace(channel, std::move(receiver)).second;
  CHECK(is_new) << "channel " << static_cast<int>(channel) << " has a receiver";
}

void Peers::Connect(uint16_t peer, std::function<void(const absl::Status&)> done) {
  if (is_closed_) return;
  Peer& entry = peers_[peer];
  if (entry.state == State::kReady) return done(absl::OkStatus());
  if (entry.state == State::kLost) return done(entry.lost);
  entry.waiting.push_back(std::move(done));
  if (entry.state != State::kNew) return;
  entry.state = State::kConnecting;
  Dial(peer);
}

// Both ends list their transports in the same order: they come to the same one.
std::pair<Transport*, const TransportAddress*> Peers::WayTo(const Peer& peer,
                                                            std::string* reasons) const {
  for (const auto& transport : transports_) {
    for (const TransportAddress& there : peer.addresses) {
      if (there.transport != transport->name()) continue;
      const absl::Status reaches = transport->Reaches(there.address);
      if (reaches.ok()) return {transport.get(), &there};
      if (reasons == nullptr) continue;
      *reasons += absl::StrFormat("; %s: %s", there.transport, std::string(reaches.message()));
    }
  }
  return {nullptr, nullptr};
}

bool Peers::IsNear(uint16_t peer) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return false;
  const Transport* const transport = WayTo(found->second, nullptr).first;
  return transport != nullptr && transport->lends();
}

bool Peers::HasNear() const {
  return std::ranges::any_of(peers_, [this](const auto& peer) {
    return peer.first != options_.node && IsNear(peer.first);
  });
}

void Peers::Dial(uint16_t peer) {
  std::string reasons = refused_;
  if (const auto [transport, there] = WayTo(peers_[peer], &reasons); transport != nullptr) {
    LinkRequest request;
    request.peer = peer;
    request.peer_address = there->address;
    request.reactor = options_.reactor;
    return transport->Connect(std::move(request), [this, peer, is_alive = is_alive_](
                                                      absl::StatusOr<std::unique_ptr<Link>> link) {
      if (*is_alive) OnLink(peer, std::move(link));
    });
  }
  Lose(peer, absl::UnavailableError(
                 absl::StrFormat("node %d: no transport reaches node %d%s", options_.node, peer,
                                 reasons.empty() ? "; they have none in common" : reasons)));
}

void Peers::OnLink(uint16_t peer, absl::StatusOr<std::unique_ptr<Link>> link) {
  if (is_closed_) return;
  if (!link.ok()) return Lose(peer, link.status());
  Peer& entry = peers_[peer];
  entry.state = State::kChecking;
  entry.link = *std::move(link);
  VLOG(1) << entry.link->Describe();
  if (options_.on_link) options_.on_link(*entry.link);
  entry.check = std::make_unique<LinkCheck>(
      entry.link.get(), options_.reactor,
      [this, peer](const absl::Status& status) { OnChecked(peer, status); });
  entry.link->OnClosed([this, peer](const absl::Status& reason) { Lose(peer, reason); });
  entry.link->SetHandler([this, peer](std::span<const std::byte> frame) { OnFrame(peer, frame); });
  entry.check->Start();
}

void Peers::OnChecked(uint16_t peer, const absl::Status& status) {
  Peer& entry = peers_[peer];
  if (is_closed_ || entry.state != State::kChecking) return;
  if (!status.ok()) {
    entry.link->Close(status);  // tells the peer
    return Lose(peer, status);
  }
  entry.state = State::kReady;
  Answer(entry, absl::OkStatus());
}

void Peers::OnFrame(uint16_t peer, std::span<const std::byte> frame) {
  if (is_closed_) return;
  const auto channel = static_cast<Channel>(frame[0]);
  absl::Status status;
  // A frame of somebody's may come before this end's check is over: the peer's is.
  if (const auto receiver = receivers_.find(channel); receiver != receivers_.end()) {
    status = receiver->second(peer, frame);
  } else if (channel == Channel::kCheck) {
    status = peers_[peer].check->OnFrame(frame);
  } else if (channel != Channel::kPayload) {
    status = absl::InvalidArgumentError(absl::StrFormat("a frame of unknown channel %d, %d bytes",
                                                        static_cast<int>(channel), frame.size()));
  }
  if (!status.ok()) peers_[peer].link->Close(status);
}

void Peers::Lose(uint16_t peer, const absl::Status& reason) {
  Peer& entry = peers_[peer];
  if (is_closed_ || entry.state == State::kLost) return;
  entry.state = State::kLost;
  entry.lost = reason;
  if (options_.on_loss) options_.on_loss({peer, entry.link != nullptr, reason});
  Answer(entry, reason);
}

void Peers::Answer(Peer& peer, const absl::Status& status) {
  for (const auto& done : std::exchange(peer.waiting, {})) done(status);
}

Link* Peers::LinkTo(uint16_t peer) {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second.link.get();
}

bool Peers::IsReady(uint16_t peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.state == State::kReady;
}

std::map<uint16_t, PeerCounters> Peers::counters() const {
  std::map<uint16_t, PeerCounters> counters;
  for (const auto& [peer, entry] : peers_) {
    if (entry.link != nullptr) counters[peer] = {entry.link->Describe(), entry.link->counters()};
  }
  return counters;
}

void Peers::Close(const absl::Status& reason) {
  if (std::exchange(is_closed_, true)) return;
  for (auto& [peer, entry] : peers_) {
    entry.waiting.clear();
    if (entry.link != nullptr) entry.link->Close(reason);
  }
}

}  // namespace braid
