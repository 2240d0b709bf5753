// Takes the connections that come to listening sockets. A process that has no descriptor left for
// one lets it wait and looks again later, instead of being told of it without end.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/network/socket.h"
#include "runtime/base/reactor.h"

namespace braid {

// Everything on the reactor's thread.
class Acceptor {
 public:
  using SocketHandler = std::function<void(Socket socket)>;

  // `name`: whose connections they are, for the log. `reactor` is borrowed.
  Acceptor(Reactor& reactor, std::string name) : reactor_(reactor), name_(std::move(name)) {}
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Once. `on_socket` may call Stop. After an error none is watched.
  absl::Status Start(std::vector<Socket> listeners, SocketHandler on_socket);
  // Closes the listeners. Nobody is called any more.
  void Stop();

 private:
  absl::Status Listen(size_t listener);
  void Accept(size_t listener);
  // Of a listener that is not watched.
  void Pause(size_t listener, const absl::Status& why);

  Reactor& reactor_;
  const std::string name_;
  std::vector<Socket> listeners_;
  SocketHandler on_socket_;
  std::map<size_t, TimerId> paused_;  // listeners that are not watched now
  bool is_short_ = false;             // and it was said
};

}  // namespace braid
