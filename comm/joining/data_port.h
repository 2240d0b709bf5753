// A node's data port: accepts connections and lets in those peers of the job that can show its
// cookie. Whoever else comes (a port scan, another program) is dropped without an answer, and holds
// up nobody: strangers have little time and there are only so many of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/joining/node_greeting.h"
#include "comm/network/acceptor.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"

namespace braid {

// Everything on the reactor's thread.
class DataPort : public std::enable_shared_from_this<DataPort> {
 public:
  // A peer whose hello was right and was answered by a welcome. Its socket is not watched.
  using PeerHandler = std::function<void(uint16_t peer, Socket socket)>;

  DataPort(uint16_t node, const NodeCookie& cookie, Reactor& reactor)
      : node_(node),
        cookie_(cookie),
        reactor_(reactor),
        acceptor_(reactor, absl::StrFormat("node %d's data port", node)) {}

  void Start(std::vector<Socket> listeners, PeerHandler on_peer);
  // Closes all that the port still has. Nobody is called any more.
  void Stop();

 private:
  struct Stranger {
    Socket socket;
    NodeGreetingReader greeting;
    TimerId timer = 0;
  };

  void Greet(Socket socket);
  void Hear(uint64_t number);
  void Drop(uint64_t number, const absl::Status& why);

  const uint16_t node_;
  const NodeCookie cookie_;
  Reactor& reactor_;
  Acceptor acceptor_;
  PeerHandler on_peer_;
  bool is_stopped_ = false;  // maybe before it starts
  uint64_t last_stranger_ = 0;
  std::map<uint64_t, Stranger> strangers_;  // oldest first
};

}  // namespace braid
