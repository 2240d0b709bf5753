// TCP sockets as comm uses them: non-blocking, closed on exec, for IPv4 and IPv6. The control plane
// and the tcp transport stand on these.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// A numeric address with a port. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  // `length` bytes of an AF_INET or AF_INET6 sockaddr.
  SocketAddress(const sockaddr* address, socklen_t length);

  // "10.0.0.1:9988" or "[fe80::1%eth0]:9988"; INVALID_ARGUMENT for anything else, names included.
  static absl::StatusOr<SocketAddress> Parse(std::string_view text);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  SocketAddress WithPort(uint16_t port) const;
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
  bool is_any() const;       // 0.0.0.0 or ::
  std::string host() const;  // without port and brackets
  std::string ToString() const;

  // The same host, whatever the ports.
  bool SameHost(const SocketAddress& other) const;
  bool operator==(const SocketAddress& other) const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// Every address of a host name or numeric address, in the system's order of preference, each once.
// NOT_FOUND names the host and what the resolver said. Blocks as long as the resolver does.
absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, uint16_t port);

// The addresses (port 0) of an interface that is up: "eth0". NOT_FOUND lists those there are.
absl::StatusOr<std::vector<SocketAddress>> InterfaceAddresses(const std::string& interface);
// Of all interfaces that are up.
absl::StatusOr<std::vector<SocketAddress>> LocalAddresses();
// Whether an address is this machine's, whose LocalAddresses are `local`; any loopback address is.
bool IsLocalAddress(const SocketAddress& address, const std::vector<SocketAddress>& local);
// The interface that has this address, whatever the port; empty if none has.
std::string InterfaceOf(const SocketAddress& address);

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int Release() { return std::exchange(descriptor_, -1); }
  void Close();

  absl::StatusOr<SocketAddress> LocalAddress() const;
  absl::StatusOr<SocketAddress> PeerAddress() const;
  // After a StartConnect became writable: OK, or why the connection could not be made, with errno's
  // text ("Connection refused").
  absl::Status ConnectResult() const;

 private:
  int descriptor_ = -1;
};

// Binds and listens; the port may be taken again at once after a process ended. ALREADY_EXISTS
// for a busy port names the address; port 0 takes a free one (LocalAddress says which).
absl::StatusOr<Socket> ListenOn(const SocketAddress& address);
// A connection that came, or UNAVAILABLE if none waits.
absl::StatusOr<Socket> AcceptFrom(const Socket& listener);
// Starts to connect and returns at once. `from`: the local address to use, or none (port 0).
absl::StatusOr<Socket> StartConnect(const SocketAddress& to,
                                    const SocketAddress& from = SocketAddress());

// Small frames leave at once; a peer whose machine does not answer any more is noticed within
// `silence_seconds`, idle (keepalive) or not (TCP_USER_TIMEOUT).
absl::Status PrepareConnection(const Socket& socket, int silence_seconds);

// After PrepareConnection, for a peer that may read nothing for long. To TCP_USER_TIMEOUT (since
// Linux 5.11) a full window is silence, although the peer's machine confirms it again and again.
// Without that option the owner asks IsUnanswered about every second.
absl::Status AllowSlowReader(const Socket& socket);
// Whether something is under way that the peer's machine should have answered, while nothing was
// heard of it for `silence_seconds`. A full window is probed now and then: true for an instant,
// too, while a probe is on its way.
bool IsUnanswered(const Socket& socket, int silence_seconds);

}  // namespace braid
