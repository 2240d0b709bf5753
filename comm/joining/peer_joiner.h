// Brings the calls of both nodes of a pair together over stream sockets: the node with the higher
// number dials, the other waits, and both make sure whom they reached.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/joining/data_port.h"
#include "comm/joining/node_greeting.h"
#include "comm/joining/peer_dial.h"
#include "comm/network/network.h"
#include "comm/transport.h"

namespace braid {

// Where a node listens and dials from.
struct JoinPlace {
  std::vector<SocketAddress> local;  // empty: anywhere
  bool dials_from_local = false;     // else from wherever the system wants
  std::string name;                  // for errors: "eth0"
};

struct JoinListeners {
  std::vector<Socket> sockets;
  std::vector<SocketAddress> candidates;  // as of NodeAddress
};

struct LinkEnds {
  uint16_t node = 0;
  uint16_t peer = 0;
  Reactor* reactor = nullptr;  // the link's
};

// A link of a joined socket, on the link's reactor.
using MakeLinkOfSocket =
    std::function<absl::StatusOr<std::unique_ptr<Link>>(Socket socket, const LinkEnds& ends)>;

struct PeerJoinerOptions {
  uint16_t node = 0;
  std::string transport;  // its name, for errors
  NodeCookie cookie{};
  JoinPlace place;
  Reactor* reactor = nullptr;  // where it lives; a link goes to its own when it is joined
  Network* network = nullptr;
};

// Everything on its reactor's thread, its making aside.
class PeerJoiner : public std::enable_shared_from_this<PeerJoiner> {
 public:
  PeerJoiner(PeerJoinerOptions options, MakeLinkOfSocket make_link);

  const JoinPlace& place() const { return options_.place; }

  void Start(std::vector<Socket> listeners);
  // Answers all calls, with an error.
  void Stop();
  // As of Transport. The request's address is a NodeAddress.
  void Connect(LinkRequest request, Transport::ConnectCallback done);

 private:
  struct Call {
    LinkRequest request;
    Transport::ConnectCallback done;
    NodeCookie peer_cookie{};
    std::shared_ptr<PeerDial> dial;  // or
    std::optional<TimerId> timer;    // while it waits for the peer
    Socket joined;                   // which has not been confirmed yet
    NodeGreetingReader confirmation;
  };

  absl::Status Stopped() const;
  void OnPeer(uint16_t peer, Socket socket);
  void Join(uint16_t peer, Socket socket);
  void HearConfirmation(uint16_t peer);
  void Lost(uint16_t peer, const absl::Status& why);
  void LeaveJoined(Call& call);
  void Answer(uint16_t peer, absl::StatusOr<Socket> socket);

  const PeerJoinerOptions options_;
  const MakeLinkOfSocket make_link_;
  Reactor& reactor_;
  const std::shared_ptr<DataPort> port_;
  bool is_stopped_ = false;           // what was posted before may still come
  std::map<uint16_t, Call> calls_;    // by peer, like
  std::map<uint16_t, Socket> early_;  // peers that came before the call for them
};

}  // namespace braid
