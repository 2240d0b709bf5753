// A node's end of the control plane: says hello to the master, tells it what fails here, and takes
// the session to its end with the first cause (node_states.h). What the master orders meanwhile is
// its owner's to do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "comm/control/control_channel.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"
#include "runtime/node_states.h"

namespace braid {

namespace control {
class ControlMessage;
class Hello;
}  // namespace control

// Everything happens on one reactor's thread, but for what says otherwise.
class ControlAgent {
 public:
  struct Options {
    uint16_t node = 0;
    Reactor* reactor = nullptr;  // borrowed
    // Peers, Load, PlanChunk, Run, Unload, Status, StallNoted, RollCall, Dial and StoreAnswer;
    // anything else is refused before.
    std::function<void(control::ControlMessage& message)> obey;
    // The cause of a failure, as soon as it is known here, maybe twice. May be empty.
    std::function<void(const absl::Status& cause)> on_failure;
    // The cause with what this node knows of it, where its last events are.
    std::function<absl::Status(const absl::Status& cause)> annotate;
    // Ends jobs and links for this reason; OnIdle follows.
    std::function<void(const absl::Status& reason)> close_all;
  };
  explicit ControlAgent(Options options) : options_(std::move(options)) {}

  // `closed` comes once, unless the owner leaves before.
  void Serve(std::unique_ptr<ControlChannel> master, const control::Hello& hello,
             std::function<void(absl::Status)> closed);

  void Send(const control::ControlMessage& message);
  void Fail(const absl::Status& cause);
  // `cause` may be the first sign of an end of which the master knows more.
  void FailLink(const absl::Status& cause);
  // Jobs and links have ended.
  void OnIdle();
  // The owner goes: `closed` is not called any more, and the channel ends. `over` is called once
  // nothing runs any more, maybe inside this call.
  void Leave(std::function<void()> over);

  // Whether the session goes on here, as far as this node knows.
  bool is_serving() const { return state_ == NodeState::kServing || state_ == NodeState::kFailing; }

  // What the session does, for messages. Any thread.
  void SetPhase(std::string phase);
  std::string Phase() const;

 private:
  void OnMessage(const std::string& bytes);
  // `status` is the cause that comes with it, if it brings one.
  void Handle(NodeEvent event, const absl::Status& status = absl::OkStatus());
  void Do(NodeAction action, const absl::Status& status, bool is_link);
  void AwaitCause(const absl::Status& cause, Nanoseconds limit, bool is_last = false);

  const Options options_;
  NodeState state_ = NodeState::kServing;
  absl::Status cause_;
  std::unique_ptr<ControlChannel> master_;
  std::function<void(absl::Status)> closed_;
  std::function<void()> over_;
  control::ControlMessage* order_ = nullptr;  // while it is handled
  mutable Mutex phase_mutex_;
  std::string phase_ BRAID_GUARDED_BY(phase_mutex_) = "joining";
};

}  // namespace braid
