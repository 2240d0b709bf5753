// Where sockets come from: the system, or a simulation. Whoever listens or dials is given a
// Network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/network/socket.h"

namespace braid {

// Any thread.
class Network {
 public:
  virtual ~Network() = default;

  // Binds and listens; the port may be taken again at once after a process ended. ALREADY_EXISTS
  // for a busy port names the address; port 0 takes a free one (LocalAddress says which).
  virtual absl::StatusOr<Socket> ListenOn(const SocketAddress& address) = 0;
  // Starts to connect and returns at once. `from`: the local address to use, or none (port 0).
  virtual absl::StatusOr<Socket> StartConnect(const SocketAddress& to,
                                              const SocketAddress& from) = 0;

  // As the functions of these names in socket_address.h, for this machine of the network.
  virtual absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host,
                                                                 uint16_t port) = 0;
  virtual absl::StatusOr<std::vector<SocketAddress>> InterfaceAddresses(
      const std::string& interface) = 0;
  virtual absl::StatusOr<std::vector<SocketAddress>> LocalAddresses() = 0;
  virtual std::string InterfaceOf(const SocketAddress& address) = 0;
};

// The system's own. It has no state.
Network* SystemNetwork();

// By the system's network.
absl::StatusOr<Socket> ListenOn(const SocketAddress& address);
absl::StatusOr<Socket> StartConnect(const SocketAddress& to,
                                    const SocketAddress& from = SocketAddress());
// A free port of this address (whose own port is 0): as long as the socket is open the system
// chooses it for nobody else, and a ListenOn that names it still gets it, in any process. For those
// who tell a port to the one that is to listen there.
absl::StatusOr<Socket> ReservePort(const SocketAddress& address);

}  // namespace braid
