// One node of a launch: its process here, or the ssh that holds its process elsewhere, and what
// becomes of its output. Belongs to the reactor's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/tool/node_command.h"
#include "api/tool/output_stream.h"
#include "api/tool/output_text.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/process.h"
#include "runtime/base/reactor.h"

namespace braid {

class NodeProcess {
 public:
  struct Output {
    // Inherited: the node writes where the tool does. Kept: the end of it can be asked for. Tagged:
    // line by line.
    enum class Kind { kInherited, kKept, kTagged };
    Kind kind = Kind::kInherited;
    OutputStream* out = nullptr;  // the tool's own; not owned
    OutputStream* err = nullptr;
  };

  // Who starts it, borrowed.
  struct Starter {
    Reactor* reactor = nullptr;
    const ProcessGuard* guard = nullptr;  // kills all of the node if the starter is killed
  };

  // `on_end` is called once, after the last output. The program cannot be started: an error names
  // it and says why.
  static absl::StatusOr<std::unique_ptr<NodeProcess>> Start(Starter starter, NodeCommand command,
                                                            Output output,
                                                            std::function<void(ExitStatus)> on_end);
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  bool has_ended() const { return process_->has_ended(); }
  Nanoseconds ended_at() const { return process_->ended_at(); }
  // To all processes of the node. SIGKILL also ends an ssh that does not bring it there.
  void Signal(int signal);
  // The streams have room again.
  void ResumeOutput();

  // "node 1 (pid 123, 10.0.0.2)".
  std::string Describe() const;
  // "exit code 1: error: no data", with what the node said of it if that is known.
  std::string DescribeFailure(const ExitStatus& status) const;
  // What was kept of its output, which nobody has seen if is_output_kept.
  const OutputTail& tail() const { return tail_; }
  bool is_output_kept() const { return output_.kind == Output::Kind::kKept; }

 private:
  struct Channel;
  // What the child has as its standard descriptors, if it does not inherit them.
  struct ChildEnds {
    Descriptor input;
    Descriptor output;
    Descriptor error;
  };

  NodeProcess(Starter starter, NodeCommand command, Output output);
  absl::Status StartProcess(std::function<void(ExitStatus)> on_end);
  absl::Status PrepareLocal(ProcessOptions& options, ChildEnds& ends);
  absl::Status PrepareRemote(ProcessOptions& options, ChildEnds& ends);
  absl::Status PrepareOutput(ProcessOptions& options, ChildEnds& ends);
  absl::StatusOr<Descriptor> OpenChannel(Channel opened);
  void OnEnd(ExitStatus status, const std::function<void(ExitStatus)>& on_end);

  Reactor* const reactor_;
  const ProcessGuard* const guard_;
  NodeCommand command_;
  const Output output_;
  OutputTail tail_;
  std::vector<std::unique_ptr<Channel>> channels_;
  Descriptor orders_pipe_;                // to a remote node
  std::unique_ptr<OutputStream> orders_;  // writes there
  std::optional<TimerId> ssh_timer_;
  std::unique_ptr<Process> process_;
};

// How messages name a node, its process aside: "node 1 (10.0.0.2)".
std::string NameNode(const NodeCommand& command);

}  // namespace braid
