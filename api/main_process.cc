#include "api/main_process.h"

#include <glog/logging.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/command_line.h"
#include "api/plan_report.h"
#include "runtime/base/status.h"
#include "runtime/device/host_memory.h"

namespace braid {
namespace {

// How long what has failed may take to end: all are to have ended within 3 s, on a busy machine,
// too.
constexpr Nanoseconds kMainEndLimit = 2 * kSecond;

// In place of std::terminate. A plan's memory is checked before a job runs; this is the rest. The
// words are made now: later there is no memory for them.
void EndWithWordsWithoutMemory() {
  static const std::string& text = *new std::string(absl::StrFormat(
      "error: this process finds no more memory; the least of the machine's, the control group's "
      "and the address space's (ulimit -v) is %s: raise it, or use smaller batches, micro-batches "
      "or more devices\n",
      BytesText(static_cast<double>(ReadMemoryLimits().least()))));
  std::set_new_handler([] {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    _exit(1);
  });
}

}  // namespace

absl::Status PrepareProcess(int argc, char** argv, const std::string& about,
                            std::string_view hidden_file) {
  OpenStandardDescriptors();
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of writing it
  DescribeProgram(about, hidden_file);
  const absl::Status status = ParseProgramLine(argc, argv, hidden_file);
  EndWithWordsWithoutMemory();
  return status;
}

void PrintError(const absl::Status& status) {
  std::cout << std::flush;
  std::cerr << "error: " << status.message() << "\n" << std::flush;
}

ProcessEnd::ProcessEnd()
    : environment_(MakeRealEnvironment()), reactor_(environment_->StartReactor("end")) {}

ProcessEnd::~ProcessEnd() { signals_.reset(); }

absl::Status ProcessEnd::WatchSignals() {
  BRAID_ASSIGN_OR_RETURN(signals_, SignalWatcher::Start(reactor_.get(), {SIGINT, SIGTERM},
                                                        [this](int signal) { OnSignal(signal); }));
  return absl::OkStatus();
}

void ProcessEnd::Limit(const absl::Status& cause) {
  reactor_->Post([this, cause] { LimitHere(cause); });
}

int ProcessEnd::End(const absl::Status& status) {
  signals_.reset();
  return ExitCodeOf(status);
}

int ProcessEnd::ExitCodeOf(const absl::Status& status) const {
  if (status.ok()) return 0;
  const int signal = signal_.load();
  return signal != 0 ? 128 + signal : 1;
}

void ProcessEnd::OnSignal(int signal) {
  if (signal_.exchange(signal) != 0) _exit(128 + signal);
  const absl::Status reason = absl::CancelledError(
      absl::StrFormat("interrupted by %s", signal == SIGINT ? "SIGINT" : "SIGTERM"));
  LimitHere(reason);
  interruption_.Raise(reason);
}

// The last word counts: what this process saw first may be a consequence.
void ProcessEnd::LimitHere(const absl::Status& cause) {
  cause_ = cause;
  if (std::exchange(is_limited_, true)) return;
  reactor_->RunAfter(kMainEndLimit, [this] {
    PrintError(cause_);
    _exit(ExitCodeOf(cause_));
  });
}

}  // namespace braid
