#include "api/main.h"

#include <glog/logging.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "api/command_line.h"
#include "api/flags.h"
#include "api/measure_machine.h"
#include "api/plan_report.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/signals.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_limit.h"
#include "runtime/device/host_memory.h"
#include "runtime/kernels/check_numerics.h"

namespace braid {
namespace {

// How long a session that has failed may take to end: all are to have ended within 3 s, on a busy
// machine, too.
constexpr Nanoseconds kMainEndLimit = 2 * kSecond;

// Of this file, and of measuring the machine.
constexpr int kThreadsHere = 5;

void PrintError(const absl::Status& status) {
  std::cout << std::flush;
  std::cerr << "error: " << status.message() << "\n" << std::flush;
}

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

// Ends the process when it was told to by a signal, or when a failed session does not end by
// itself.
class ProcessEnd {
 public:
  ProcessEnd() : environment_(MakeRealEnvironment()), reactor_(environment_->StartReactor("end")) {}

  absl::Status WatchSignals() {
    BRAID_ASSIGN_OR_RETURN(signals_,
                           SignalWatcher::Start(reactor_.get(), {SIGINT, SIGTERM},
                                                [this](int signal) { OnSignal(signal); }));
    return absl::OkStatus();
  }

  ~ProcessEnd() { signals_.reset(); }

  Interruption& interruption() { return interruption_; }

  // Any thread.
  void Limit(const absl::Status& cause) {
    reactor_->Post([this, cause] { LimitHere(cause); });
  }

  // The process's exit code. All nodes of a terminal get its Ctrl-C, and another one's word of it
  // may have come first: so our own signals are heard to the last one.
  int End(const absl::Status& status) {
    signals_.reset();
    return ExitCodeOf(status);
  }

 private:
  int ExitCodeOf(const absl::Status& status) const {
    if (status.ok()) return 0;
    const int signal = signal_.load();
    return signal != 0 ? 128 + signal : 1;
  }

  void OnSignal(int signal) {
    if (signal_.exchange(signal) != 0) _exit(128 + signal);
    const absl::Status reason = absl::CancelledError(
        absl::StrFormat("interrupted by %s", signal == SIGINT ? "SIGINT" : "SIGTERM"));
    LimitHere(reason);
    interruption_.Raise(reason);
  }

  // The last word counts: what this process saw first may be a consequence.
  void LimitHere(const absl::Status& cause) {
    cause_ = cause;
    if (std::exchange(is_limited_, true)) return;
    reactor_->RunAfter(kMainEndLimit, [this] {
      PrintError(cause_);
      _exit(ExitCodeOf(cause_));
    });
  }

  const std::unique_ptr<Environment> environment_;
  std::unique_ptr<SignalWatcher> signals_;
  Interruption interruption_;
  std::atomic<int> signal_{0};
  bool is_limited_ = false;
  absl::Status cause_;  // of the end
  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

// Before the nodes join, so that all measure at the same time.
void Measure(ProgramFlags& flags) {
  if (!flags.measures_machine) return;
  const KernelRegistry kernels = CpuKernels();
  SessionOptions& session = flags.session;
  session.measured =
      CachedMachine({.kernels = &kernels, .threads_per_device = session.threads_per_device});
  if (session.network.has_value()) session.network->rates = session.measured->ToString();
}

absl::Status Extend(const MainOptions& options, OpRegistry& operators, KernelRegistry& kernels) {
  if (!options.extend) return absl::OkStatus();
  return CatchExceptions("MainOptions::extend", [&] { return options.extend(operators, kernels); });
}

absl::Status Serve(const ProgramFlags& flags, const MainOptions& options, ProcessEnd& end) {
  OpRegistry operators = BuiltinOps();
  KernelRegistry kernels = CpuKernels();
  if (flags.session.check_numerics) kernels.WrapAll(CheckNumerics);
  BRAID_RETURN_IF_ERROR(Extend(options, operators, kernels));
  const Cluster& cluster = flags.session.network->cluster;
  const DeviceSpec devices = DevicesHere(*cluster.nodes[cluster.rank].devices);
  BRAID_ASSIGN_OR_RETURN(const DeviceKinds::Kind* const kind,
                         flags.session.device_kinds.Find(devices.type));
  if (kind->open) BRAID_RETURN_IF_ERROR(kind->open(devices.count));
  return ServeNode(*flags.session.network,
                   {.device_kind = kind,
                    .threads_per_device = flags.session.threads_per_device,
                    .stall_timeout = flags.session.stall_timeout,
                    .event_dump = flags.session.event_dump,
                    .kernels = &kernels,
                    .dataset_kinds = options.dataset_kinds,
                    .interruption = &end.interruption(),
                    .on_failure = [&end](const absl::Status& cause) { end.Limit(cause); }});
}

absl::Status RunProgram(const MainOptions& options,
                        const std::function<absl::Status(Session&)>& program, ProcessEnd& end) {
  BRAID_ASSIGN_OR_RETURN(ProgramFlags flags, ReadFlags(options.cluster, options.device_kinds));
  const bool dry_run = flags.session.dry_run;
  if (!flags.is_master && dry_run) return absl::OkStatus();
  Measure(flags);
  if (!flags.is_master) return Serve(flags, options, end);
  flags.session.dataset_kinds = options.dataset_kinds;
  flags.session.interruption = &end.interruption();
  flags.session.on_failure = [&end](const absl::Status& cause) { end.Limit(cause); };
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                         Session::Start(std::move(flags.session)));
  absl::Status status = Extend(options, session->operators(), session->kernels());
  if (status.ok()) status = CatchExceptions("the program", [&] { return program(*session); });
  if (dry_run && absl::IsCancelled(status)) status = absl::OkStatus();
  // The other nodes end as this one does, and it as they do.
  const absl::Status closed = session->Close(status);
  return status.ok() ? closed : status;
}

}  // namespace

int Main(int argc, char** argv, const MainOptions& options,
         const std::function<absl::Status(Session&)>& program) {
  OpenStandardDescriptors();
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of writing it
  DescribeProgram(options.about);
  absl::Status status = ParseProgramLine(argc, argv);
  EndWithWordsWithoutMemory();
  if (status.ok()) status = CheckThreads(kThreadsHere);
  if (!status.ok()) {
    PrintError(status);
    return 1;
  }
  ProcessEnd end;
  status = end.WatchSignals();
  if (status.ok()) status = RunProgram(options, program, end);
  if (status.ok()) status = FlushStandardOutput();
  if (!status.ok()) PrintError(status);
  return end.End(status);
}

int Main(int argc, char** argv, const std::function<absl::Status(Session&)>& program) {
  return Main(argc, argv, MainOptions(), program);
}

}  // namespace braid
