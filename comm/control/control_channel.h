// What the control plane talks over: whole messages between the master and one node, in order. It
// knows nothing of what is in them. The pair made here joins two nodes of one process; over TCP the
// rendezvous makes the same.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"

namespace braid {

// One end. Send and Close from any thread; handlers are called on the end's reactor thread.
// Destroy it on that thread or after its reactor.
class ControlChannel {
 public:
  using MessageHandler = std::function<void(std::string message)>;
  using ClosedHandler = std::function<void(absl::Status reason)>;

  virtual ~ControlChannel() = default;
  // Messages sent before are kept for the handlers. Set once. `on_closed` comes at most once, after
  // the last message.
  virtual void SetHandlers(MessageHandler on_message, ClosedHandler on_closed) = 0;
  virtual void Send(std::string message) = 0;  // dropped on a closed channel
  virtual void Close(absl::Status reason) = 0;
};

// Both reactors outlive the ends' use.
std::pair<std::unique_ptr<ControlChannel>, std::unique_ptr<ControlChannel>> MakeLoopbackControlPair(
    Reactor* first, Reactor* second);

}  // namespace braid
