// One node's links to its peers: made when somebody first asks for one, checked before anybody
// relies on it, shared by all who speak over it, and lost with a cause. What is said over them is
// their receivers' business.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/peers/link_check.h"
#include "comm/transport.h"
#include "runtime/base/reactor.h"

namespace braid {

// How a node is reached by one of its transports.
struct TransportAddress {
  std::string transport;  // Transport::name
  std::string address;    // Transport::Open

  bool operator==(const TransportAddress&) const = default;
};

// What went over the link to a peer.
struct PeerCounters {
  std::string link;  // Link::Describe
  LinkCounters counters;
};

// Why there is no link to a peer, or none any more.
struct LinkLoss {
  uint16_t peer = 0;
  bool was_linked = false;  // false: it was never made
  absl::Status reason;
};

// Everything happens on one reactor's thread, its making aside. Both ends of a pair have to ask for
// their link; the transport decides who dials.
class Peers {
 public:
  struct Options {
    uint16_t node = 0;
    Reactor* reactor = nullptr;  // borrowed
    // A new link, before the first frame comes over it. May be empty.
    std::function<void(Link& link)> on_link;
    // Once a peer, and not after Close. What waits for the link hears the same.
    std::function<void(const LinkLoss& loss)> on_loss;
  };

  explicit Peers(Options options);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Opens the transports, best first, and returns how peers reach those that work here. Once.
  std::vector<TransportAddress> Open(std::vector<std::unique_ptr<Transport>> transports);
  // Where a peer is, best first.
  void SetAddresses(uint16_t peer, std::vector<TransportAddress> addresses);

  // Gets the frames of one channel; an error closes the link that they came by. Set once for a
  // channel, before the first link is made.
  using Receiver = std::function<absl::Status(uint16_t peer, std::span<const std::byte> frame)>;
  void SetReceiver(Channel channel, Receiver receiver);

  // `done` is told once, maybe inside this call, that the link is there and checked, or why not;
  // after Close, nobody is told. Whoever asks again shares the one link.
  void Connect(uint16_t peer, std::function<void(const absl::Status&)> done);
  // Whether the link to it is of a transport that lends, as far as that shows before it is made:
  // both ends of a pair come to the same.
  bool IsNear(uint16_t peer) const;
  bool HasNear() const;  // one of all whose addresses are known
  // Null: it was not made.
  Link* LinkTo(uint16_t peer);
  // Whether all that has to be known of the link is known: it is checked and not lost.
  bool IsReady(uint16_t peer) const;

  std::map<uint16_t, PeerCounters> counters() const;  // of the links that were made

  // Closes all links with this reason, and makes none any more.
  void Close(const absl::Status& reason);

 private:
  enum class State { kNew, kConnecting, kChecking, kReady, kLost };
  struct Peer {
    State state = State::kNew;
    absl::Status lost;  // why, if it is
    std::vector<TransportAddress> addresses;
    std::vector<std::function<void(const absl::Status&)>> waiting;
    std::unique_ptr<LinkCheck> check;  // outlives the link
    std::unique_ptr<Link> link;
  };

  // By what it is reached, and where; null: by nothing, for `reasons`, which may be null.
  std::pair<Transport*, const TransportAddress*> WayTo(const Peer& peer,
                                                       std::string* reasons) const;
  void Dial(uint16_t peer);
  void OnLink(uint16_t peer, absl::StatusOr<std::unique_ptr<Link>> link);
  void OnChecked(uint16_t peer, const absl::Status& status);
  void OnFrame(uint16_t peer, std::span<const std::byte> frame);
  void Lose(uint16_t peer, const absl::Status& reason);
  void Answer(Peer& peer, const absl::Status& status);

  const Options options_;
  std::vector<std::unique_ptr<Transport>> transports_;  // that work here
  std::string refused_;                                 // why others do not: "; tcp does not ..."
  std::map<Channel, Receiver> receivers_;
  std::map<uint16_t, Peer> peers_;
  bool is_closed_ = false;
  // What a transport still answers after this object finds it false. Shared with the callbacks.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace braid
