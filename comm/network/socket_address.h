// Addresses of sockets, for IPv4, IPv6 and within a machine, and what this machine says of names
// and interfaces.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// A numeric address with a port; or a name of this machine and network namespace, which is no file
// (the abstract ones of AF_UNIX) and has no port. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  // `length` bytes of an AF_INET, AF_INET6 or AF_UNIX sockaddr.
  SocketAddress(const sockaddr* address, socklen_t length);

  // "10.0.0.1:9988", "[fe80::1%eth0]:9988" or "unix:NAME"; INVALID_ARGUMENT for anything else,
  // names of hosts included.
  static absl::StatusOr<SocketAddress> Parse(std::string_view text);
  static absl::StatusOr<SocketAddress> OfMachine(std::string_view name);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  SocketAddress WithPort(uint16_t port) const;
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
  // fe80::/10: another network on every interface; a peer cannot know which.
  bool is_link_local() const;
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

}  // namespace braid
