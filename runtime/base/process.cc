#include "runtime/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What the child needs between fork and exec, where only async-signal-safe calls are allowed:
// everything is laid out before.
struct ChildImage {
  char* const* arguments;
  char* const* environment;
  std::array<int, 3> standard;  // the descriptor to take for 0, 1 and 2
  const std::vector<int>& inherited;
  bool own_group;
  int guard;  // its pipe, or -1
  pid_t starter;
  int failure;  // the pipe's end to which errno is written if there is no exec
};

// Makes descriptors 0, 1 and 2. A source among these three moves out of the way first.
bool PlaceStandardDescriptors(std::array<int, 3> sources) {
  for (int target = 0; target < 3; ++target) {
    int& source = sources[target];
    if (source >= 3 || source == target) continue;
    source = fcntl(source, F_DUPFD_CLOEXEC, 3);
    if (source < 0) return false;
  }
  for (int target = 0; target < 3; ++target) {
    if (sources[target] != target && dup2(sources[target], target) < 0) return false;
  }
  return true;
}

// Tells the starter errno.
[[noreturn]] void Fail(const ChildImage& image) {
  const int error = errno;
  [[maybe_unused]] const ssize_t bytes = write(image.failure, &error, sizeof(error));
  _exit(127);
}

[[noreturn]] void BecomeProgram(const ChildImage& image) {
  if (image.own_group && setpgid(0, 0) != 0) Fail(image);
  if (image.guard >= 0) GuardOwnGroup(image.guard);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) Fail(image);
  // The starter may have died before the kernel knew that we care.
  if (getppid() != image.starter) _exit(128 + SIGKILL);
  if (!PlaceStandardDescriptors(image.standard)) Fail(image);
  for (const int descriptor : image.inherited) {
    if (fcntl(descriptor, F_SETFD, 0) != 0) Fail(image);
  }
  // Also one that is pending since a guard's pipe had no reader.
  ::signal(SIGPIPE, SIG_IGN);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  // Fails for those that cannot be changed, and these have no other disposition.
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(image.arguments[0], image.arguments, image.environment);
  Fail(image);
}

std::vector<std::string> ChangedEnvironment(
    const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value.has_value()) result.push_back(name + "=" + *value);
  }
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The child's pid, once it is forked. No handler of this process runs in the child: all signals
// are blocked meanwhile.
pid_t Fork(const ChildImage& image) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(image);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

// Waits until the child runs its program or has ended; 0, or errno of what failed there.
int AwaitExec(const Descriptor& failure) {
  int error = 0;
  ssize_t bytes;
  do {
    bytes = read(failure.number(), &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  return bytes == sizeof(error) ? error : 0;
}

absl::Status CannotStart(const std::string& program, int error) {
  const bool is_looked_up = program.find('/') == std::string::npos;
  const absl::Status status = absl::ErrnoToStatus(error, "");
  return absl::Status(
      status.code(),
      absl::StrFormat("cannot start '%s': %s%s", program, strerror(error),
                      error == ENOENT && is_looked_up ? "; no folder of PATH has it" : ""));
}

// The end of our child `pid`, for which it waits; it stays a zombie until it is released, so that
// its number belongs to nobody else.
siginfo_t AwaitEnd(pid_t pid) {
  siginfo_t info{};
  int result;
  do {
    result = waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  PCHECK(result == 0) << "cannot wait for process " << pid;
  return info;
}

void Release(pid_t pid) {
  siginfo_t info{};
  while (waitid(P_PID, pid, &info, WEXITED) != 0 && errno == EINTR) {
  }
}

std::string SignalName(int signal) {
  const char* name = sigdescr_np(signal);
  return name == nullptr ? "unknown" : name;
}

}  // namespace

bool ForgetsChildren() {
  struct sigaction current;
  if (sigaction(SIGCHLD, nullptr, &current) != 0) return false;
  return current.sa_handler == SIG_IGN || (current.sa_flags & SA_NOCLDWAIT) != 0;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

std::string DescribeSignal(int signal) {
  return absl::StrFormat("signal %d (%s)", signal, SignalName(signal));
}

std::string ExitStatus::ToString() const {
  if (signal != 0) return DescribeSignal(signal);
  const int shell_signal = code - 128;
  if (shell_signal > 0 && shell_signal < NSIG && sigdescr_np(shell_signal) != nullptr) {
    return absl::StrFormat("exit code %d (128 + signal %d, %s)", code, shell_signal,
                           SignalName(shell_signal));
  }
  return absl::StrFormat("exit code %d", code);
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(Reactor* reactor,
                                                        const ProcessOptions& options,
                                                        std::function<void(ExitStatus)> on_end) {
  CHECK(reactor->InThread());
  CHECK(!options.command.empty()) << "a process needs a program";
  const std::string& program = options.command[0];
  if (ForgetsChildren()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "cannot start '%s': SIGCHLD is ignored here, so its end would not be seen; set it to "
        "SIG_DFL",
        program));
  }
  BRAID_ASSIGN_OR_RETURN(Pipe failure, MakePipe());
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> environment = ChangedEnvironment(options.environment);
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t pid = Fork({
      .arguments = argument_pointers.data(),
      .environment = environment_pointers.data(),
      .standard = {options.standard_input.value_or(STDIN_FILENO),
                   options.standard_output.value_or(STDOUT_FILENO),
                   options.standard_error.value_or(STDERR_FILENO)},
      .inherited = options.inherited,
      .own_group = options.own_group,
      .guard = options.own_group && options.guard != nullptr ? options.guard->descriptor() : -1,
      .starter = getpid(),
      .failure = failure.write_end.number(),
  });
  if (pid < 0) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot fork to start '%s'", program));
  }
  failure.write_end.Close();
  if (const int error = AwaitExec(failure.read_end); error != 0) {
    Release(pid);
    if (options.guard != nullptr) options.guard->Forget(pid);
    return CannotStart(program, error);
  }
  std::unique_ptr<Process> process(new Process(reactor, pid, options, std::move(on_end)));
  BRAID_RETURN_IF_ERROR(process->WatchEnd());
  return process;
}

absl::StatusOr<std::unique_ptr<Process>> Process::Adopt(Reactor* reactor, pid_t child,
                                                        std::function<void(ExitStatus)> on_end) {
  CHECK(reactor->InThread());
  std::unique_ptr<Process> process(new Process(reactor, child, {}, std::move(on_end)));
  BRAID_RETURN_IF_ERROR(process->WatchEnd());
  return process;
}

Process::Process(Reactor* reactor, pid_t pid, const ProcessOptions& options,
                 std::function<void(ExitStatus)> on_end)
    : reactor_(reactor),
      pid_(pid),
      leads_group_(options.own_group),
      guard_(options.own_group ? options.guard : nullptr),
      on_end_(std::move(on_end)) {}

Process::~Process() {
  if (has_ended()) return;
  Signal(SIGKILL);
  Reap();  // the kernel ends it without its help
}

absl::Status Process::WatchEnd() {
  // Our own child and not waited for: the number is still its own.
  pidfd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.is_open()) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("cannot watch process %d", pid_));
  }
  return reactor_->Watch(pidfd_.number(), {.readable = true}, [this](Reactor::Readiness) {
    Reap();
    // On the stack: the call may destroy this.
    const std::function<void(ExitStatus)> on_end = std::move(on_end_);
    on_end(*end_);
  });
}

void Process::Signal(int signal) {
  if (has_ended()) return;
  if (leads_group_) {
    kill(-pid_, signal);
  } else if (pidfd_.is_open()) {
    syscall(SYS_pidfd_send_signal, pidfd_.number(), signal, nullptr, 0);
  } else {
    kill(pid_, signal);
  }
}

void Process::Reap() {
  const siginfo_t info = AwaitEnd(pid_);
  ended_at_ = reactor_->Now();
  if (leads_group_) kill(-pid_, SIGKILL);  // what is left of it
  if (guard_ != nullptr) guard_->Forget(pid_);
  Release(pid_);
  if (pidfd_.is_open()) {
    reactor_->Unwatch(pidfd_.number());
    pidfd_.Close();
  }
  if (info.si_code == CLD_EXITED) {
    end_ = ExitStatus{.code = info.si_status};
  } else {
    end_ = ExitStatus{.signal = info.si_status};
  }
}

}  // namespace braid
