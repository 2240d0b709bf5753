#include "comm/network/acceptor.h"

#include <utility>

#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr Nanoseconds kPause = 100 * kMillisecond;

}  // namespace

absl::Status Acceptor::Start(std::vector<Socket> listeners, SocketHandler on_socket) {
  listeners_ = std::move(listeners);
  on_socket_ = std::move(on_socket);
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (absl::Status status = Listen(i); !status.ok()) {
      while (i-- > 0) reactor_.Unwatch(listeners_[i].descriptor());
      listeners_.clear();
      return status;
    }
  }
  return absl::OkStatus();
}

void Acceptor::Stop() {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    if (paused_.contains(i)) {
      reactor_.CancelTimer(paused_.at(i));
    } else {
      reactor_.Unwatch(listeners_[i].descriptor());
    }
  }
  paused_.clear();
  listeners_.clear();
}

absl::Status Acceptor::Listen(size_t listener) {
  return reactor_.Watch(listeners_[listener].descriptor(), {.readable = true},
                        [this, listener](Reactor::Readiness) { Accept(listener); });
}

void Acceptor::Accept(size_t listener) {
  absl::StatusOr<Socket> socket = AcceptFrom(listeners_[listener]);
  if (absl::IsUnavailable(socket.status())) return;
  if (!socket.ok()) {
    reactor_.Unwatch(listeners_[listener].descriptor());
    return Pause(listener, socket.status());
  }
  is_short_ = false;
  on_socket_(*std::move(socket));
}

void Acceptor::Pause(size_t listener, const absl::Status& why) {
  if (!std::exchange(is_short_, true)) {
    LOG(WARNING) << name_ << ": " << why.message()
                 << "; who connects waits meanwhile. Raise what this process may have (ulimit -n)";
  }
  paused_[listener] = reactor_.RunAfter(kPause, [this, listener] {
    paused_.erase(listener);
    const absl::Status status = Listen(listener);
    if (!status.ok()) Pause(listener, status);
  });
}

}  // namespace braid
