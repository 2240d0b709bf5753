// One machine's part of a launch: starts its nodes or ranks when LaunchMaster says so, tells it how
// they end, and knows at last how the launch has ended everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "api/tool/launch_failure.h"
#include "api/tool/node_command.h"
#include "api/tool/running_cluster.h"
#include "comm/control/control_channel.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace launch {
class Begin;
class Outcome;
}  // namespace launch

// Made anywhere; the rest on the reactor's thread.
class LaunchMachine {
 public:
  struct Options {
    // What is started here after so many restarts; its ranks meet at this port of machine 0, or, if
    // it is 0, where they know.
    absl::AnyInvocable<std::vector<NodeCommand>(int restarts, uint16_t port)> commands;
    int max_restarts = 0;                 // for messages
    const ProcessGuard* guard = nullptr;  // borrowed
    bool tag_output = false;
    std::string place;                        // "machine 1 (hostb)", for messages; "": alone
    std::string master;                       // "machine 0 (10.0.0.1)"
    std::unique_ptr<ControlChannel> channel;  // to LaunchMaster
    // Called once, when nothing of the launch runs here any more.
    std::function<void(const LaunchOutcome&)> on_end;
  };
  LaunchMachine(Reactor* reactor, Options options);
  LaunchMachine(const LaunchMachine&) = delete;
  LaunchMachine& operator=(const LaunchMachine&) = delete;

  void Start();
  // That this launcher got and that is to end the launch, on all machines.
  void OnSignal(int signal);

 private:
  void OnOrder(const std::string& bytes);
  void OnLost(const absl::Status& reason);
  void Begin(const launch::Begin& begin);
  void PassSignal(int signal);
  void OnFailure(const LaunchFailure& failure);
  void TellTime(Nanoseconds asked);
  void OnEnded(int exit_code);
  void Finish(const LaunchOutcome& outcome);

  Reactor* const reactor_;
  Options options_;
  std::unique_ptr<RunningCluster> cluster_;  // while it runs
  std::optional<int> signal_;                // the first that came
  std::optional<LaunchFailure> first_;  // of this machine and attempt, and the loss of the master
  bool is_lost_ = false;                // the master is
  bool is_finished_ = false;
};

// What is printed of an outcome: the output, and the cause with what follows from it.
std::string TextOf(const LaunchOutcome& outcome, const std::string& what_follows);

}  // namespace braid
