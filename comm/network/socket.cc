#include "comm/network/socket.h"

#include <cerrno>
#include <cstring>

namespace braid {

bool IoResult::is_blocked() const { return error == EAGAIN || error == EWOULDBLOCK; }

std::string IoResult::ErrorText() const { return std::strerror(error); }

absl::StatusOr<Socket> AcceptFrom(const Socket& listener) { return listener.end_->Accept(); }

absl::Status PrepareConnection(const Socket& socket, int silence_seconds) {
  return socket.end_->Prepare(silence_seconds);
}

absl::Status AllowSlowReader(const Socket& socket) { return socket.end_->AllowSlowReader(); }

bool IsUnanswered(const Socket& socket, int silence_seconds) {
  return socket.end_->IsUnanswered(silence_seconds);
}

absl::Status SocketError(int error) {
  return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
}

}  // namespace braid
