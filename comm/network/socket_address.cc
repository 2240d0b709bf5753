#include "comm/network/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

namespace braid {
namespace {

const sockaddr_in& Ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}

const sockaddr_in6& Ipv6(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

constexpr std::string_view kUnix = "unix:";

// "" of the end of a connection that has none.
std::string UnixName(const SocketAddress& address) {
  constexpr size_t kBefore = offsetof(sockaddr_un, sun_path) + 1;
  if (address.length() <= kBefore) return "";
  const auto& unix = *reinterpret_cast<const sockaddr_un*>(address.get());
  return {unix.sun_path + 1, address.length() - kBefore};
}

absl::Status NotAnAddress(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("'%s' is no address such as 10.0.0.1:9988 or [fe80::1%%eth0]:9988: %s",
                      std::string(text), std::string(why)));
}

void AddOnce(std::vector<SocketAddress>& addresses, const SocketAddress& address) {
  if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
    addresses.push_back(address);
  }
}

// Calls `take(name, address)` for every IP address of an interface that is up.
template <typename Take>
absl::Status ForEachLocalAddress(const Take& take) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::ErrnoToStatus(errno, "cannot list the network interfaces");
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      take(entry->ifa_name, SocketAddress(entry->ifa_addr, sizeof(sockaddr_in)));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      take(entry->ifa_name, SocketAddress(entry->ifa_addr, sizeof(sockaddr_in6)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) : length_(length) {
  CHECK(address->sa_family == AF_INET || address->sa_family == AF_INET6 ||
        address->sa_family == AF_UNIX)
      << "address family " << address->sa_family;
  CHECK_LE(length, sizeof(storage_));
  std::memcpy(&storage_, address, length);
}

absl::StatusOr<SocketAddress> SocketAddress::Parse(std::string_view text) {
  if (text.starts_with(kUnix)) return OfMachine(text.substr(kUnix.size()));
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return NotAnAddress(text, "it has no port");
  std::string host(text.substr(0, colon));
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return NotAnAddress(text, "the port must be a number from 0 to 65535");
  }
  if (sockaddr_in v4{}; inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  }
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') {
    return NotAnAddress(text, "the host is no IPv4 address, and no IPv6 address in brackets");
  }
  host = host.substr(1, host.size() - 2);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (const size_t percent = host.find('%'); percent != std::string::npos) {
    const std::string scope = host.substr(percent + 1);
    host.resize(percent);
    v6.sin6_scope_id = if_nametoindex(scope.c_str());
    if (v6.sin6_scope_id == 0) {
      const auto [last, bad] =
          std::from_chars(scope.data(), scope.data() + scope.size(), v6.sin6_scope_id);
      if (bad != std::errc() || last != scope.data() + scope.size() || v6.sin6_scope_id == 0) {
        return NotAnAddress(text, absl::StrFormat("there is no interface '%s'", scope));
      }
    }
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
    return NotAnAddress(text, "what the brackets hold is no IPv6 address");
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

absl::StatusOr<SocketAddress> SocketAddress::OfMachine(std::string_view name) {
  sockaddr_un unix{};
  unix.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof(unix.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no name of a socket: it has %d bytes, must have 1 to %d",
                        std::string(name), name.size(), sizeof(unix.sun_path) - 1));
  }
  std::memcpy(unix.sun_path + 1, name.data(), name.size());  // behind a 0: no file
  return SocketAddress(reinterpret_cast<const sockaddr*>(&unix),
                       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(Ipv4(get()).sin_port);
  if (family() == AF_INET6) return ntohs(Ipv6(get()).sin6_port);
  return 0;
}

SocketAddress SocketAddress::WithPort(uint16_t port) const {
  SocketAddress changed = *this;
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&changed.storage_)->sin_port = htons(port);
  } else if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&changed.storage_)->sin6_port = htons(port);
  }
  return changed;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return ntohl(Ipv4(get()).sin_addr.s_addr) >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&Ipv6(get()).sin6_addr);
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&Ipv6(get()).sin6_addr);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return Ipv4(get()).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&Ipv6(get()).sin6_addr);
}

std::string SocketAddress::host() const {
  if (family() == AF_UNIX) return "this machine";
  char text[NI_MAXHOST];
  if (length_ == 0 ||
      getnameinfo(get(), length_, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "(no address)";
  }
  return text;
}

std::string SocketAddress::ToString() const {
  if (family() == AF_UNIX) return std::string(kUnix) + UnixName(*this);
  return family() == AF_INET6 ? absl::StrFormat("[%s]:%d", host(), port())
                              : absl::StrFormat("%s:%d", host(), port());
}

bool SocketAddress::SameHost(const SocketAddress& other) const {
  return WithPort(0) == other.WithPort(0);
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  if (family() != other.family() || port() != other.port()) return false;
  if (family() == AF_UNIX) {
    const std::string name = UnixName(*this);  // none: nobody can tell one from another
    return !name.empty() && name == UnixName(other);
  }
  if (family() == AF_INET) {
    return Ipv4(get()).sin_addr.s_addr == Ipv4(other.get()).sin_addr.s_addr;
  }
  return family() != AF_INET6 ||
         (Ipv6(get()).sin6_scope_id == Ipv6(other.get()).sin6_scope_id &&
          IN6_ARE_ADDR_EQUAL(&Ipv6(get()).sin6_addr, &Ipv6(other.get()).sin6_addr));
}

absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrFormat("host '%s' has no address: %s", host,
                        error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    AddOnce(addresses, SocketAddress(entry->ai_addr, entry->ai_addrlen).WithPort(port));
  }
  if (addresses.empty()) {
    return absl::NotFoundError(absl::StrFormat("host '%s' has no IPv4 or IPv6 address", host));
  }
  return addresses;
}

absl::StatusOr<std::vector<SocketAddress>> InterfaceAddresses(const std::string& interface) {
  std::vector<SocketAddress> addresses;
  std::vector<std::string> others;
  const absl::Status status =
      ForEachLocalAddress([&](const std::string& name, const SocketAddress& address) {
        if (name == interface) {
          AddOnce(addresses, address);
        } else if (std::find(others.begin(), others.end(), name) == others.end()) {
          others.push_back(name);
        }
      });
  if (!status.ok()) return status;
  if (addresses.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("no interface '%s' is up and has an IP address; those that are: %s",
                        interface, others.empty() ? "none" : absl::StrJoin(others, ", ")));
  }
  return addresses;
}

absl::StatusOr<std::vector<SocketAddress>> LocalAddresses() {
  std::vector<SocketAddress> addresses;
  const absl::Status status = ForEachLocalAddress(
      [&](const std::string&, const SocketAddress& address) { AddOnce(addresses, address); });
  if (!status.ok()) return status;
  return addresses;
}

bool IsLocalAddress(const SocketAddress& address, const std::vector<SocketAddress>& local) {
  return address.is_loopback() ||
         std::any_of(local.begin(), local.end(),
                     [&](const SocketAddress& own) { return own.SameHost(address); });
}

std::string InterfaceOf(const SocketAddress& address) {
  std::string interface;
  ForEachLocalAddress([&](const std::string& name, const SocketAddress& own) {
    if (interface.empty() && own.SameHost(address)) interface = name;
  }).IgnoreError();
  return interface;
}

}  // namespace braid
