#include "comm/joining/data_port.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr Nanoseconds kGreetingTime = 5 * kSecond;
constexpr size_t kMaxStrangers = 64;

std::string NameOf(const Socket& socket) {
  const absl::StatusOr<SocketAddress> address = socket.PeerAddress();
  return address.ok() ? address->ToString() : "a peer that has left";
}

}  // namespace

void DataPort::Start(std::vector<Socket> listeners, PeerHandler on_peer) {
  if (is_stopped_) return;
  on_peer_ = std::move(on_peer);
  const absl::Status status =
      acceptor_.Start(std::move(listeners), [this](Socket socket) { Greet(std::move(socket)); });
  CHECK(status.ok()) << status;
}

void DataPort::Stop() {
  is_stopped_ = true;
  acceptor_.Stop();
  while (!strangers_.empty()) {
    Drop(strangers_.begin()->first, absl::CancelledError("the port was closed"));
  }
  on_peer_ = nullptr;
}

void DataPort::Greet(Socket socket) {
  // Peers speak at once: whoever has been silent for longest is none.
  if (strangers_.size() >= kMaxStrangers) {
    Drop(strangers_.begin()->first, absl::ResourceExhaustedError(absl::StrFormat(
                                        "%d others came and it said nothing", kMaxStrangers)));
  }
  const uint64_t number = ++last_stranger_;
  Stranger& stranger = strangers_[number];
  stranger.socket = std::move(socket);
  stranger.timer = reactor_.RunAfter(kGreetingTime, [self = shared_from_this(), number] {
    self->Drop(number, absl::DeadlineExceededError("no greeting came in time"));
  });
  const absl::Status status = reactor_.Watch(
      stranger.socket.descriptor(), {.readable = true},
      [self = shared_from_this(), number](Reactor::Readiness) { self->Hear(number); });
  if (!status.ok()) Drop(number, status);
}

void DataPort::Hear(uint64_t number) {
  Stranger& stranger = strangers_.at(number);
  const absl::StatusOr<bool> is_complete = stranger.greeting.Read(stranger.socket);
  if (!is_complete.ok()) return Drop(number, is_complete.status());
  if (!*is_complete) return;
  const absl::StatusOr<NodeGreeting> hello =
      CheckNodeGreeting(stranger.greeting.bytes(),
                        {.stage = NodeGreeting::Stage::kHello, .to = node_, .cookie = cookie_});
  if (!hello.ok()) return Drop(number, hello.status());
  if (hello->from < node_) {
    return Drop(number, absl::InvalidArgumentError(absl::StrFormat(
                            "node %d dials node %d; the node with the higher number does",
                            hello->from, node_)));
  }
  const absl::Status status =
      SendNodeGreeting(stranger.socket, {.stage = NodeGreeting::Stage::kWelcome,
                                         .from = node_,
                                         .to = hello->from,
                                         .cookie = cookie_});
  if (!status.ok()) return Drop(number, status);
  reactor_.CancelTimer(stranger.timer);
  reactor_.Unwatch(stranger.socket.descriptor());
  Socket socket = std::move(stranger.socket);
  strangers_.erase(number);
  on_peer_(hello->from, std::move(socket));
}

void DataPort::Drop(uint64_t number, const absl::Status& why) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  VLOG(1) << "node " << node_ << " drops the connection of " << NameOf(found->second.socket) << ": "
          << why;
  reactor_.CancelTimer(found->second.timer);
  reactor_.Unwatch(found->second.socket.descriptor());
  strangers_.erase(found);
}

}  // namespace braid
