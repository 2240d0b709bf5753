// TCP sockets as comm uses them: non-blocking, closed on exec, for IPv4 and IPv6. The control plane
// and the tcp transport stand on these, whether the system or a simulation made them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/network/socket_address.h"

namespace braid {

class Socket;

// What a read or write did.
struct IoResult {
  size_t bytes = 0;  // of a read: none without an error is the end of the stream
  int error = 0;     // errno, or 0

  bool is_blocked() const;  // nothing for now: wait until the socket is ready
  std::string ErrorText() const;
};

// What a Socket owns; a Network makes it. Destroying it closes it. Reads by one thread, writes by
// one thread at a time.
class SocketEnd {
 public:
  virtual ~SocketEnd() = default;
  // For Reactor::Watch.
  virtual int descriptor() const = 0;

  virtual IoResult Read(std::span<const iovec> parts) = 0;
  virtual IoResult Write(std::span<const iovec> parts) = 0;
  // The peer reads what was written and then the end; this end still reads.
  virtual void ShutdownWrite() = 0;

  virtual absl::StatusOr<SocketAddress> LocalAddress() const = 0;
  virtual absl::StatusOr<SocketAddress> PeerAddress() const = 0;
  // As of Socket, AcceptFrom and the functions that follow it.
  virtual absl::Status ConnectResult() = 0;
  virtual absl::StatusOr<Socket> Accept() = 0;
  virtual absl::Status Prepare(int silence_seconds) = 0;
  virtual absl::Status AllowSlowReader() = 0;
  virtual bool IsUnanswered(int silence_seconds) const = 0;
  virtual size_t UnconfirmedBytes() const = 0;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(std::unique_ptr<SocketEnd> end) : end_(std::move(end)) {}
  // Takes a descriptor of the system's; none if it is negative.
  explicit Socket(int descriptor);

  // -1 if there is none.
  int descriptor() const { return end_ == nullptr ? -1 : end_->descriptor(); }
  bool is_open() const { return end_ != nullptr; }
  void Close() { end_.reset(); }

  // All that follows: of an open socket.
  IoResult Read(std::span<std::byte> bytes) const {
    const iovec part{bytes.data(), bytes.size()};
    return end_->Read({&part, 1});
  }
  IoResult Write(std::span<const std::byte> bytes) const {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return end_->Write({&part, 1});
  }
  // In the order of the parts, and in one go.
  IoResult ReadParts(std::span<const iovec> parts) const { return end_->Read(parts); }
  IoResult WriteParts(std::span<const iovec> parts) const { return end_->Write(parts); }
  void ShutdownWrite() const { end_->ShutdownWrite(); }

  // Of what was written: the bytes that the peer's machine has not confirmed. 0 if nobody knows.
  size_t UnconfirmedBytes() const { return end_->UnconfirmedBytes(); }

  absl::StatusOr<SocketAddress> LocalAddress() const { return end_->LocalAddress(); }
  absl::StatusOr<SocketAddress> PeerAddress() const { return end_->PeerAddress(); }
  // After a StartConnect became writable: OK, or why the connection could not be made, with errno's
  // text ("Connection refused").
  absl::Status ConnectResult() const { return end_->ConnectResult(); }

 private:
  friend absl::StatusOr<Socket> AcceptFrom(const Socket& listener);
  friend absl::Status PrepareConnection(const Socket& socket, int silence_seconds);
  friend absl::Status AllowSlowReader(const Socket& socket);
  friend bool IsUnanswered(const Socket& socket, int silence_seconds);

  std::unique_ptr<SocketEnd> end_;
};

// A connection that came, or UNAVAILABLE if none waits.
absl::StatusOr<Socket> AcceptFrom(const Socket& listener);

// Small frames leave at once; a peer whose machine does not answer any more is noticed within
// `silence_seconds`, idle (keepalive) or not (TCP_USER_TIMEOUT).
absl::Status PrepareConnection(const Socket& socket, int silence_seconds);

// After PrepareConnection, for a peer that may read nothing for long. To TCP_USER_TIMEOUT (since
// Linux 5.11) a full window is silence, although the peer's machine confirms it again and again.
// Without that option the owner asks IsUnanswered about every second.
absl::Status AllowSlowReader(const Socket& socket);
// Whether something is under way that the peer's machine should have answered, while nothing was
// heard of it for `silence_seconds`. A full window is probed now and then: true for an instant,
// too, while a probe is on its way. (UnconfirmedBytes would not tell: what waits for a slow reader
// is unconfirmed as well.)
bool IsUnanswered(const Socket& socket, int silence_seconds);

// Only errno's words: callers know both addresses and say them.
absl::Status SocketError(int error);

}  // namespace braid
