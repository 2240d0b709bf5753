// The nodes of a launch on one machine while they run: starts them, passes signals on, and when one
// fails ends all others and knows which was the first. Belongs to the reactor's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/tool/launch_failure.h"
#include "api/tool/node_command.h"
#include "api/tool/node_process.h"
#include "api/tool/output_stream.h"
#include "runtime/base/process.h"
#include "runtime/base/reactor.h"

namespace braid {

class RunningCluster {
 public:
  struct Options {
    std::vector<NodeCommand> commands;
    const ProcessGuard* guard = nullptr;  // borrowed
    bool tag_output = false;              // else node 0 prints, and the others' output is kept
    std::string place;                    // "machine 1 (hostb)", for messages; "": alone
    std::string preface;                  // printed before anything starts
    // The first failure, unless a signal to this launch came before; again if one that was seen
    // later counts before it.
    std::function<void(const LaunchFailure&)> on_failure;
    // Called once, when every node has ended and all output is written: with the exit code of the
    // first failure.
    std::function<void(int exit_code)> on_end;
  };
  // Anywhere; Start and all that follows on the reactor's thread.
  RunningCluster(Reactor* reactor, Options options);
  // Kills nodes that still run.
  ~RunningCluster();

  void Start();
  // Passes a signal that should end the launch on to all nodes; also before Start.
  void OnSignal(int signal);
  // A node has failed elsewhere. Those here should end by themselves; if they do not: SIGTERM, then
  // SIGKILL.
  void EndSoon();

 private:
  void StartNode(NodeCommand command);
  void OnNodeEnd(size_t number, ExitStatus status);
  void Fail(LaunchFailure failure);
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
  bool was_signalled_ = false;    // before any failure
  bool was_interrupted_ = false;  // by SIGINT
  bool is_impatient_ = false;     // signalled again, before all nodes had ended
  bool has_signalled_ = false;    // any node
  std::optional<TimerId> term_timer_;
  std::optional<TimerId> kill_timer_;
  std::optional<TimerId> drain_timer_;
  std::optional<LaunchFailure> first_;
  int exit_code_ = 0;  // of a signal that came before all was started
};

}  // namespace braid
