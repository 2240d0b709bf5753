#include "comm/joining/peer_dial.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// A candidate has that long to be connected and to answer. Ten times what a far network takes.
constexpr Nanoseconds kAttemptTime = 3 * kSecond;
constexpr Nanoseconds kMoreTime = 2 * kSecond;
constexpr Nanoseconds kFirstPause = 20 * kMillisecond;
constexpr Nanoseconds kLongestPause = 500 * kMillisecond;

}  // namespace

void PeerDial::Start() {
  pause_ = kFirstPause;
  SetTimer(deadline_, ReachTime(), &PeerDial::Expire);
  Try();
}

Nanoseconds PeerDial::ReachTime() const {
  const auto candidates = static_cast<Nanoseconds>(options_.peer_address.candidates.size());
  return std::min(options_.timeout, candidates * kAttemptTime + kMoreTime);
}

void PeerDial::Cancel() {
  Forget();
  ClearTimer(deadline_);
  done_ = nullptr;
}

void PeerDial::Try() {
  const SocketAddress& to = options_.peer_address.candidates[candidate_];
  const auto from =
      std::find_if(options_.local.begin(), options_.local.end(),
                   [&](const SocketAddress& local) { return local.family() == to.family(); });
  if (from == options_.local.end() && !options_.local.empty()) {
    return TryNext(absl::UnavailableError("it has no address of that family"));
  }
  absl::StatusOr<Socket> socket =
      options_.network->StartConnect(to, from == options_.local.end() ? SocketAddress() : *from);
  route_ = from == options_.local.end() ? "" : from->host();
  if (!socket.ok()) return TryNext(socket.status());
  socket_ = *std::move(socket);
  // The kernel has chosen it by now.
  if (const auto local = socket_.LocalAddress(); local.ok()) {
    const std::string interface = options_.network->InterfaceOf(*local);
    route_ = local->host() + (interface.empty() ? "" : " (" + interface + ")");
  }
  stage_ = Stage::kConnecting;
  SetTimer(attempt_, kAttemptTime, &PeerDial::GiveUpAttempt);
  WatchFor({.writable = true});
}

void PeerDial::WatchFor(Reactor::Readiness interest) {
  const absl::Status status =
      reactor_.Watch(socket_.descriptor(), interest,
                     [self = shared_from_this()](Reactor::Readiness) { self->Ready(); });
  if (!status.ok()) TryNext(status);
}

void PeerDial::Ready() {
  if (stage_ != Stage::kConnecting) return Hear();
  absl::Status status = socket_.ConnectResult();
  if (status.ok()) status = Say(NodeGreeting::Stage::kHello);
  if (!status.ok()) return TryNext(status);
  stage_ = Stage::kGreeting;
  greeting_ = NodeGreetingReader();
  WatchFor({.readable = true});
}

absl::Status PeerDial::Say(NodeGreeting::Stage stage) {
  return SendNodeGreeting(socket_, {.stage = stage,
                                    .from = options_.node,
                                    .to = options_.peer,
                                    .cookie = options_.peer_address.cookie});
}

void PeerDial::Hear() {
  const absl::StatusOr<bool> is_complete = greeting_.Read(socket_);
  if (!is_complete.ok()) return TryNext(is_complete.status());
  if (!*is_complete) return;
  const bool is_welcome = stage_ == Stage::kGreeting;
  const absl::StatusOr<NodeGreeting> greeting = CheckNodeGreeting(
      greeting_.bytes(),
      {.stage = is_welcome ? NodeGreeting::Stage::kWelcome : NodeGreeting::Stage::kJoined,
       .from = options_.peer,
       .to = options_.node,
       .cookie = is_welcome ? options_.peer_address.cookie : options_.cookie});
  if (!greeting.ok()) return TryNext(greeting.status());
  if (!is_welcome) {
    if (const absl::Status status = Say(NodeGreeting::Stage::kConfirmed); !status.ok()) {
      return TryNext(status);
    }
    reactor_.Unwatch(socket_.descriptor());
    return Finish(std::move(socket_));
  }
  // The right node; from here it takes as long as the peer needs to want the link.
  stage_ = Stage::kWaiting;
  ClearTimer(attempt_);
  SetTimer(deadline_, options_.timeout, &PeerDial::Expire);
  greeting_ = NodeGreetingReader();
  Hear();  // it may want it already
}

void PeerDial::GiveUpAttempt() {
  const bool is_connected = stage_ != Stage::kConnecting;
  TryNext(absl::DeadlineExceededError(absl::StrFormat(
      "%s within %d s (%s)%s", is_connected ? "connected, but no greeting" : "no connection",
      kAttemptTime / kSecond, std::strerror(ETIMEDOUT),
      is_connected ? "" : ": packets are dropped between")));
}

void PeerDial::TryNext(const absl::Status& failure) {
  Forget();
  if (stage_ == Stage::kWaiting) SetTimer(deadline_, ReachTime(), &PeerDial::Expire);
  stage_ = Stage::kConnecting;
  last_failure_ = absl::UnavailableError(absl::StrFormat(
      "node %d -> node %d: %s from %s: %s", options_.node, options_.peer,
      options_.peer_address.candidates[candidate_].ToString(),
      route_.empty() ? options_.local_name : route_, std::string(failure.message())));
  candidate_ = (candidate_ + 1) % options_.peer_address.candidates.size();
  Nanoseconds delay = 0;
  if (candidate_ == 0) delay = std::exchange(pause_, std::min(2 * pause_, kLongestPause));
  SetTimer(attempt_, delay, &PeerDial::Try);
}

void PeerDial::Expire() {
  std::string last;
  Nanoseconds limit = ReachTime();
  if (stage_ == Stage::kWaiting && socket_.is_open()) {
    limit = options_.timeout;
    last = absl::StrFormat("node %d -> node %d: %s answers, but has not asked for the link",
                           options_.node, options_.peer,
                           options_.peer_address.candidates[candidate_].ToString());
  } else if (!last_failure_.ok()) {
    last = std::string(last_failure_.message());
  } else {
    last = absl::StrFormat("node %d -> node %d: %s from %s: no answer yet", options_.node,
                           options_.peer, options_.peer_address.candidates[candidate_].ToString(),
                           route_);
  }
  Finish(absl::DeadlineExceededError(
      absl::StrFormat("node %d did not connect to node %d within %.1f s: %s", options_.peer,
                      options_.node, static_cast<double>(limit) / kSecond, last)));
}

void PeerDial::Finish(absl::StatusOr<Socket> result) {
  const DoneCallback done = std::move(done_);
  Cancel();
  done(std::move(result));
}

void PeerDial::Forget() {
  ClearTimer(attempt_);
  if (!socket_.is_open()) return;
  reactor_.Unwatch(socket_.descriptor());
  socket_.Close();
}

void PeerDial::SetTimer(std::optional<TimerId>& timer, Nanoseconds delay,
                        void (PeerDial::*then)()) {
  ClearTimer(timer);
  timer = reactor_.RunAfter(delay, [self = shared_from_this(), &timer, then] {
    timer.reset();
    ((*self).*then)();
  });
}

void PeerDial::ClearTimer(std::optional<TimerId>& timer) {
  if (timer) reactor_.CancelTimer(*std::exchange(timer, std::nullopt));
}

}  // namespace braid
