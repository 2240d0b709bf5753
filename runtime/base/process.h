// A child process on a Reactor: started, signalled, its end told once.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/process_guard.h"
#include "runtime/base/reactor.h"

namespace braid {

// How a process ended. A value.
struct ExitStatus {
  int code = 0;    // what it returned, if no signal ended it
  int signal = 0;  // the signal that ended it, or 0

  bool ok() const { return code == 0 && signal == 0; }
  // As a shell says it: 128 + the signal, or the code.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  // "exit code 1", "signal 9 (Killed)"; "exit code 137 (128 + signal 9, Killed)" where a shell or
  // ssh stood between.
  std::string ToString() const;

  bool operator==(const ExitStatus&) const = default;
};

// "signal 9 (Killed)".
std::string DescribeSignal(int signal);

// Whether SIGCHLD is ignored here: the kernel then forgets how children ended.
bool ForgetsChildren();

// What this machine calls itself.
std::string HostName();

struct ProcessOptions {
  // The program and its arguments. A program without a slash is looked up in PATH.
  std::vector<std::string> command;
  // What is different from this process's environment; none removes.
  std::map<std::string, std::optional<std::string>> environment = {};

  // Descriptors of this process, whose own 0, 1 and 2 are open, that the child has as its standard
  // ones; it keeps those not named. Others that close on exec stay open in the child, under the
  // same numbers, if `inherited` names them.
  std::optional<int> standard_input = std::nullopt;
  std::optional<int> standard_output = std::nullopt;
  std::optional<int> standard_error = std::nullopt;
  std::vector<int> inherited = {};

  // The child leads a process group: Signal reaches all of it, and what is left of it is killed as
  // soon as the child ends.
  bool own_group = false;
  // Kills that group, the child's own children included, should this process die, be it by
  // `kill -9`. Borrowed; null: the child alone dies then.
  const ProcessGuard* guard = nullptr;
};

// On the reactor's thread only. The child has the default signal mask and dispositions. It gets
// SIGKILL (its own children do not, unless a guard has its group) when the thread that started it
// ends, be it by `kill -9` of this process.
class Process {
 public:
  // `on_end` is called once unless the Process is destroyed before; it may destroy the Process.
  // Comes back when the program runs. NOT_FOUND, PERMISSION_DENIED and the like name the program
  // that could not be started. FAILED_PRECONDITION if this process ignores SIGCHLD: the kernel
  // then forgets how children ended.
  static absl::StatusOr<std::unique_ptr<Process>> Start(Reactor* reactor,
                                                        const ProcessOptions& options,
                                                        std::function<void(ExitStatus)> on_end);
  // The same for a child that this process has forked (forked_child.h), and that nobody waited for.
  static absl::StatusOr<std::unique_ptr<Process>> Adopt(Reactor* reactor, pid_t child,
                                                        std::function<void(ExitStatus)> on_end);
  // Kills a child that still runs, and its group.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool has_ended() const { return end_.has_value(); }
  // On the reactor's clock, once it has ended: before anybody else could see that it is gone.
  Nanoseconds ended_at() const { return ended_at_; }
  // To the child, or to its group if it has its own. Does nothing once it has ended.
  void Signal(int signal);

 private:
  Process(Reactor* reactor, pid_t pid, const ProcessOptions& options,
          std::function<void(ExitStatus)> on_end);
  absl::Status WatchEnd();
  void Reap();

  Reactor* const reactor_;
  const pid_t pid_;
  const bool leads_group_;
  const ProcessGuard* const guard_;
  std::function<void(ExitStatus)> on_end_;
  Descriptor pidfd_;
  std::optional<ExitStatus> end_;
  Nanoseconds ended_at_ = 0;
};

}  // namespace braid
