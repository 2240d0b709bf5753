// The process of a program, as braid::Main and dist::Main have it: what it starts with, how it ends
// by a signal or a failure, and the one line that says why.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "api/interruption.h"
#include "runtime/base/reactor.h"
#include "runtime/base/signals.h"

namespace braid {

// Before anything else: standard descriptors, the log, the command line (command_line.h, with
// `about` and `hidden_file`), words where memory ends.
absl::Status PrepareProcess(int argc, char** argv, const std::string& about,
                            std::string_view hidden_file);

// "error: ...", behind all that was printed.
void PrintError(const absl::Status& status);

// Ends the process when it was told to by a signal, or when what has failed does not end by itself.
class ProcessEnd {
 public:
  ProcessEnd();
  ~ProcessEnd();
  ProcessEnd(const ProcessEnd&) = delete;
  ProcessEnd& operator=(const ProcessEnd&) = delete;

  // SIGINT and SIGTERM raise the interruption from now on.
  absl::Status WatchSignals();
  Interruption& interruption() { return interruption_; }

  // The process has failed, and ends within two seconds. Any thread.
  void Limit(const absl::Status& cause);

  // The process's exit code: 0, 1, or 128 + the signal that ended it. All nodes of a terminal get
  // its Ctrl-C, and another one's word of it may have come first: so our own signals are heard to
  // the last one.
  int End(const absl::Status& status);

 private:
  int ExitCodeOf(const absl::Status& status) const;
  void OnSignal(int signal);
  void LimitHere(const absl::Status& cause);

  const std::unique_ptr<Environment> environment_;
  std::unique_ptr<SignalWatcher> signals_;
  Interruption interruption_;
  std::atomic<int> signal_{0};
  bool is_limited_ = false;
  absl::Status cause_;  // of the end
  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace braid
