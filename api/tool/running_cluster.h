// The nodes of a launch while they run: starts them, passes signals on, and when one fails ends all
// others and knows which was the first. Belongs to the reactor's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/tool/node_command.h"
#include "api/tool/node_process.h"
#include "api/tool/output_stream.h"
#include "runtime/base/process.h"
#include "runtime/base/reactor.h"

namespace braid {

// How a launch ended.
struct LaunchResult {
  int exit_code = 0;            // of the node that failed first
  std::string output;           // what that node had printed, if nobody has seen it yet
  std::string cause;            // "" if all ended well by themselves
  bool is_interrupted = false;  // by a signal to this launch
};

class RunningCluster {
 public:
  struct Options {
    std::vector<NodeCommand> commands;
    const ProcessGuard* guard = nullptr;  // borrowed
    bool tag_output = false;              // else node 0 prints, and the others' output is kept
    // Called once, when every node has ended and all output is written.
    std::function<void(LaunchResult)> on_end;
  };
  // Anywhere; Start and all that follows on the reactor's thread.
  RunningCluster(Reactor* reactor, Options options);
  // Kills nodes that still run.
  ~RunningCluster();

  void Start();
  // Passes a signal that should end the launch on to all nodes; also before Start.
  void OnSignal(int signal);

 private:
  void StartNode(NodeCommand command);
  void OnNodeEnd(size_t place, ExitStatus status);
  void KeepOutput(const NodeProcess& node);
  // The first cause. The others should end by themselves; if they do not: SIGTERM, then SIGKILL.
  void Fail(std::string cause, int exit_code);
  void KillLater(const std::string& reason);
  void SignalAll(int signal);
  void OnDrained();
  void OnBroken();
  void FinishIfDone();
  void Finish();
  bool is_ending() const { return kill_timer_.has_value(); }

  Reactor* const reactor_;
  Options options_;
  OutputStream out_;
  OutputStream err_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;  // their ranks may begin anywhere
  int running_ = 0;
  bool is_started_ = false;
  bool is_finished_ = false;
  bool was_interrupted_ = false;
  bool is_impatient_ = false;   // signalled again, before all nodes had ended
  bool has_signalled_ = false;  // any node
  bool has_returned_ = false;   // the node that failed first, with an error of its own
  std::optional<TimerId> term_timer_;
  std::optional<TimerId> kill_timer_;
  std::optional<TimerId> drain_timer_;
  std::optional<int> exit_code_;  // of the first failure
  LaunchResult result_;
};

}  // namespace braid
