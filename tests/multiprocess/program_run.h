// A program that runs as a real process, with what it prints: for tests of whole programs. Every
// wait has a deadline.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/process.h"
#include "runtime/base/reactor.h"
#include "tests/runtime/temp_dir.h"

namespace braid {

// A test fails if it waits longer than this for anything; on a busy machine, too. (A sanitizer
// makes programs ten times slower.)
constexpr Nanoseconds kRunTimeout = BRAID_RUN_SECONDS * kSecond;

// A port of 127.0.0.1 that was free just now.
int FreePort();

class ProgramRun {
 public:
  struct Options {
    std::map<std::string, std::optional<std::string>> environment = {};
    std::optional<int> terminal = std::nullopt;  // is all three standard descriptors, if given
    bool reads_output = true;                    // false: pipes that nobody empties
  };
  explicit ProgramRun(std::vector<std::string> command) : ProgramRun(std::move(command), {}) {}
  ProgramRun(std::vector<std::string> command, Options options);
  // Ends the program and expects that no process is left of it.
  ~ProgramRun();

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Closes our end of its standard output.
  void CloseOutput();

  // Waits until `text` is printed.
  void AwaitOutput(std::string_view text);
  void AwaitError(std::string_view text);
  // Waits until a file exists.
  void AwaitFile(const std::string& path) const;
  // Waits until it ends; all that it printed is then there.
  ExitStatus Wait();

  std::string out() const;
  std::string err() const;
  std::string LastErrorLine() const;

  // Running processes that it or its descendants started, itself included.
  std::vector<pid_t> Processes() const;
  void AwaitProcesses(size_t count) const;  // until there are no more and no less

 private:
  // A pipe and what came out of it.
  struct Output {
    Descriptor pipe;
    std::string text;
    bool is_closed = false;
  };

  void OnReactor(const std::function<void()>& fn);
  void Read(Output& output);
  void Close(Output& output);
  bool AwaitThat(const std::function<bool()>& is_so);
  // Of something that changes without notice.
  bool LookUntil(const std::function<bool()>& is_so) const;

  TempDir temporary_;
  const std::string mark_;  // in the environment of every process of this run
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Output out_;
  Output err_;
  std::optional<ExitStatus> end_;

  pid_t pid_ = 0;
  std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("program run");
  std::unique_ptr<Process> process_;  // the reactor's
};

}  // namespace braid
