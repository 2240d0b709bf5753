// Reaches one peer's data port: tries the candidates of its address in order, again and again until
// a deadline, and greets whoever answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/joining/node_greeting.h"
#include "comm/network/network.h"
#include "runtime/base/reactor.h"

namespace braid {

struct PeerDialOptions {
  uint16_t node = 0;
  uint16_t peer = 0;
  NodeAddress peer_address;
  NodeCookie cookie{};               // this node's, which the peer shows
  std::vector<SocketAddress> local;  // where to dial from; empty: wherever the system wants
  std::string local_name;            // how errors call it: "eth0"
  // For a peer that was reached and does not want the link yet; to reach it, it has as long as the
  // candidates need, each once, and a little more.
  Nanoseconds timeout = 0;
  Network* network = SystemNetwork();
};

// Everything on the reactor's thread.
class PeerDial : public std::enable_shared_from_this<PeerDial> {
 public:
  // Exactly once, unless the dial is cancelled: a joined socket that is not watched, or
  // DEADLINE_EXCEEDED with what went wrong last.
  using DoneCallback = std::function<void(absl::StatusOr<Socket>)>;

  PeerDial(PeerDialOptions options, Reactor& reactor, DoneCallback done)
      : options_(std::move(options)), reactor_(reactor), done_(std::move(done)) {}

  void Start();
  void Cancel();

 private:
  enum class Stage { kConnecting, kGreeting, kWaiting };

  void Try();
  void Ready();
  absl::Status Say(NodeGreeting::Stage stage);
  void Hear();
  void TryNext(const absl::Status& failure);
  void Expire();
  void Finish(absl::StatusOr<Socket> result);
  // Watches the attempt's socket and bounds the attempt.
  void WatchFor(Reactor::Readiness interest);
  void Forget();  // the attempt
  void SetTimer(std::optional<TimerId>& timer, Nanoseconds delay, void (PeerDial::*then)());
  void ClearTimer(std::optional<TimerId>& timer);
  void GiveUpAttempt();
  Nanoseconds ReachTime() const;

  const PeerDialOptions options_;
  Reactor& reactor_;
  DoneCallback done_;
  size_t candidate_ = 0;
  Nanoseconds pause_ = 0;  // after all candidates failed
  Stage stage_ = Stage::kConnecting;
  Socket socket_;
  NodeGreetingReader greeting_;
  std::optional<TimerId> deadline_;
  std::optional<TimerId> attempt_;  // ends it, or begins the next
  std::string route_;               // of the attempt: "10.0.0.3 (eth0)"
  absl::Status last_failure_;
};

}  // namespace braid
