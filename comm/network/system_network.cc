// Sockets of the operating system.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "comm/network/network.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

absl::Status SetOption(int descriptor, int level, int option, int value, std::string_view name) {
  if (setsockopt(descriptor, level, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrFormat("cannot set %s to %d", name, value));
}

// On the way within one machine nothing is queued and nothing lost; an algorithm that paces what it
// sends (BBR) only sets timers there, 2 of the 6 ms that a small GPT's gradients take a step. A
// socket that was paced once stays so. Hence all begin with this one, which every Linux has, and
// Prepare gives those that lead to other machines what the system had given them. Where the kernel
// does not let us, it is slower and nothing else.
constexpr char kUnpaced[] = "reno";

std::string CongestionControl(int descriptor) {
  char name[16] = {};  // the kernel's limit of such names
  socklen_t length = sizeof(name);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "";
  return {name, strnlen(name, length)};
}

void SetCongestionControl(int descriptor, const std::string& name) {
  setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), name.size());
}

using NameOfEnd = int (*)(int, sockaddr*, socklen_t*);

absl::StatusOr<SocketAddress> AddressBy(NameOfEnd name_of_end, int descriptor) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (name_of_end(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return SocketError(errno);
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage), length);
}

// One system call for all parts, again if a signal came.
template <typename Call>
IoResult Transfer(std::span<const iovec> parts, const Call& call) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  ssize_t bytes = 0;
  do {
    bytes = call(&message);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return {.error = errno};
  return {.bytes = static_cast<size_t>(bytes)};
}

class SystemSocketEnd final : public SocketEnd {
 public:
  explicit SystemSocketEnd(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const override { return descriptor_.number(); }

  IoResult Read(std::span<const iovec> parts) override {
    return Transfer(
        parts, [this](msghdr* message) { return recvmsg(descriptor(), message, MSG_DONTWAIT); });
  }
  IoResult Write(std::span<const iovec> parts) override {
    return Transfer(parts, [this](const msghdr* message) {
      return sendmsg(descriptor(), message, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  void ShutdownWrite() override { shutdown(descriptor(), SHUT_WR); }

  absl::StatusOr<SocketAddress> LocalAddress() const override {
    return AddressBy(&getsockname, descriptor());
  }
  absl::StatusOr<SocketAddress> PeerAddress() const override {
    return AddressBy(&getpeername, descriptor());
  }

  absl::Status ConnectResult() override {
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return SocketError(error);
    const absl::StatusOr<SocketAddress> local = LocalAddress(), peer = PeerAddress();
    if (!peer.ok()) return peer.status();
    // A free port that happens to be dialed from itself meets itself: nobody listens there.
    if (local.ok() && *local == *peer) return SocketError(ECONNREFUSED);
    return absl::OkStatus();
  }

  absl::StatusOr<Socket> Accept() override {
    while (true) {
      Socket socket(accept4(descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.is_open()) return socket;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return absl::UnavailableError("no connection waits to be accepted");
      }
      return absl::ErrnoToStatus(errno, "cannot accept a connection");
    }
  }

  absl::Status Prepare(int silence_seconds) override {
    // Probes start in the middle of the silence and come every second.
    const int idle = std::max(1, silence_seconds / 2);
    const struct {
      int level, option, value;
      std::string_view name;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"},
        {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
        {IPPROTO_TCP, TCP_KEEPIDLE, idle, "TCP_KEEPIDLE"},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"},
        {IPPROTO_TCP, TCP_KEEPCNT, std::max(1, silence_seconds - idle), "TCP_KEEPCNT"},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, silence_seconds * 1000, "TCP_USER_TIMEOUT"},
    };
    for (const auto& [level, option, value, name] : options) {
      BRAID_RETURN_IF_ERROR(SetOption(descriptor(), level, option, value, name));
    }
    BRAID_ASSIGN_OR_RETURN(const SocketAddress local, LocalAddress());
    BRAID_ASSIGN_OR_RETURN(const SocketAddress peer, PeerAddress());
    const bool stays_here = local.SameHost(peer) || (local.is_loopback() && peer.is_loopback());
    // A route may have an algorithm of its own.
    if (!stays_here && CongestionControl(descriptor()) == kUnpaced) {
      const Descriptor fresh(::socket(local.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      SetCongestionControl(descriptor(), CongestionControl(fresh.number()));
    }
    return absl::OkStatus();
  }

  absl::Status AllowSlowReader() override {
    return SetOption(descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, 0, "TCP_USER_TIMEOUT");
  }

  bool IsUnanswered(int silence_seconds) const override {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
    const bool is_waiting = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
    return is_waiting && info.tcpi_last_ack_recv >= 1000u * silence_seconds;
  }

  size_t UnconfirmedBytes() const override {
    int bytes = 0;
    return ioctl(descriptor(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
  }

 private:
  const Descriptor descriptor_;
};

absl::StatusOr<Socket> MakeSocket(const SocketAddress& address) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot make a socket for %s", address.ToString()));
  }
  SetCongestionControl(socket.descriptor(), kUnpaced);
  return socket;
}

absl::Status CannotListen(const SocketAddress& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrFormat("cannot listen on %s: another process does; end it or choose another port",
                        address.ToString()));
  }
  return absl::ErrnoToStatus(error, absl::StrFormat("cannot listen on %s", address.ToString()));
}

class TheSystem final : public Network {
 public:
  absl::StatusOr<Socket> ListenOn(const SocketAddress& address) override {
    BRAID_ASSIGN_OR_RETURN(Socket socket, MakeSocket(address));
    const int descriptor = socket.descriptor();
    BRAID_RETURN_IF_ERROR(SetOption(descriptor, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
    if (address.family() == AF_INET6) {
      // IPv4 has a listener of its own: an address is of one family only, in errors too.
      BRAID_RETURN_IF_ERROR(SetOption(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY"));
    }
    if (bind(descriptor, address.get(), address.length()) != 0 ||
        listen(descriptor, SOMAXCONN) != 0) {
      return CannotListen(address, errno);
    }
    return socket;
  }

  absl::StatusOr<Socket> StartConnect(const SocketAddress& to, const SocketAddress& from) override {
    BRAID_ASSIGN_OR_RETURN(Socket socket, MakeSocket(to));
    const int descriptor = socket.descriptor();
    if (from.length() > 0) {
      // The port is chosen at connect: as many connections as there are ports to each peer.
      BRAID_RETURN_IF_ERROR(
          SetOption(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT"));
      if (bind(descriptor, from.get(), from.length()) != 0) {
        return absl::ErrnoToStatus(errno,
                                   absl::StrFormat("cannot connect from %s", from.ToString()));
      }
    }
    if (connect(descriptor, to.get(), to.length()) != 0 && errno != EINPROGRESS && errno != EINTR) {
      return SocketError(errno);
    }
    return socket;
  }

  absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host,
                                                         uint16_t port) override {
    return braid::ResolveHost(host, port);
  }
  absl::StatusOr<std::vector<SocketAddress>> InterfaceAddresses(
      const std::string& interface) override {
    return braid::InterfaceAddresses(interface);
  }
  absl::StatusOr<std::vector<SocketAddress>> LocalAddresses() override {
    return braid::LocalAddresses();
  }
  std::string InterfaceOf(const SocketAddress& address) override {
    return braid::InterfaceOf(address);
  }
};

}  // namespace

Socket::Socket(int descriptor) {
  if (descriptor >= 0) end_ = std::make_unique<SystemSocketEnd>(descriptor);
}

Network* SystemNetwork() {
  static TheSystem system;
  return &system;
}

absl::StatusOr<Socket> ListenOn(const SocketAddress& address) {
  return SystemNetwork()->ListenOn(address);
}

absl::StatusOr<Socket> StartConnect(const SocketAddress& to, const SocketAddress& from) {
  return SystemNetwork()->StartConnect(to, from);
}

// Two sockets that both allow it may be bound to a port of which none listens yet. This one allows
// it only once it is bound, so that it got a port that nobody else is bound to.
absl::StatusOr<Socket> ReservePort(const SocketAddress& address) {
  BRAID_ASSIGN_OR_RETURN(Socket socket, MakeSocket(address));
  if (bind(socket.descriptor(), address.get(), address.length()) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("cannot reserve a port of %s", address.ToString()));
  }
  BRAID_RETURN_IF_ERROR(
      SetOption(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  return socket;
}

}  // namespace braid
