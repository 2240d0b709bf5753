#include "api/tool/node.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/tool/await_end.h"
#include "api/tool/node_command.h"
#include "api/tool/remote_orders.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/process.h"
#include "runtime/base/process_guard.h"
#include "runtime/base/reactor.h"
#include "runtime/base/signals.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr Nanoseconds kKillNodeAfter = 2 * kSecond;

// The program and the orders for it. Belongs to the reactor's thread.
class RemoteNode {
 public:
  // `on_end` is called once.
  RemoteNode(Reactor* reactor, const ProcessGuard* guard, std::vector<std::string> program,
             std::function<void(absl::StatusOr<ExitStatus>)> on_end)
      : reactor_(reactor),
        guard_(guard),
        program_(std::move(program)),
        on_end_(std::move(on_end)) {}
  ~RemoteNode() {
    StopReading();
    if (kill_timer_.has_value()) reactor_->CancelTimer(*kill_timer_);
  }

  void Start() {
    const absl::Status status = reactor_->Watch(STDIN_FILENO, {.readable = true},
                                                [this](Reactor::Readiness) { ReadOrders(); });
    is_reading_ = status.ok();
    if (status.ok()) return;
    Finish(absl::FailedPreconditionError(
        "its standard input is no pipe; braid node is only for braid launch, which starts it over "
        "ssh"));
  }

  // The launch is over: so is the program.
  void End() {
    if (process_ == nullptr) {
      Finish(absl::AbortedError("braid launch ended before it said what to start"));
      return;
    }
    process_->Signal(SIGTERM);
    if (kill_timer_.has_value()) return;
    kill_timer_ = reactor_->RunAfter(kKillNodeAfter, [this] { process_->Signal(SIGKILL); });
  }

 private:
  void StopReading() {
    if (is_reading_) reactor_->Unwatch(STDIN_FILENO);
    is_reading_ = false;
  }

  void ReadOrders() {
    std::array<char, 4096> buffer;
    const ssize_t bytes = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (bytes <= 0) {
      StopReading();
      End();
      return;
    }
    unread_.append(buffer.data(), bytes);
    for (size_t end; (end = unread_.find('\n')) != std::string::npos;) {
      const absl::Status status = Obey(unread_.substr(0, end));
      unread_.erase(0, end + 1);
      if (status.ok()) continue;
      StopReading();
      Finish(status);
      return;
    }
  }

  absl::Status Obey(const std::string& line) {
    BRAID_RETURN_IF_ERROR(orders_.TakeLine(line));
    if (process_ == nullptr && orders_.has_environment()) return StartProgram();
    if (const std::optional<int> signal = orders_.TakeSignal()) process_->Signal(*signal);
    return absl::OkStatus();
  }

  absl::Status StartProgram() {
    const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null.is_open()) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
    BRAID_ASSIGN_OR_RETURN(process_,
                           Process::Start(reactor_,
                                          {.command = program_,
                                           .environment = EnvironmentChanges(orders_.environment()),
                                           .standard_input = null.number(),
                                           .own_group = true,
                                           .guard = guard_},
                                          [this](ExitStatus status) { Finish(status); }));
    return absl::OkStatus();
  }

  void Finish(absl::StatusOr<ExitStatus> how) {
    if (!std::exchange(is_finished_, true)) on_end_(std::move(how));
  }

  Reactor* const reactor_;
  const ProcessGuard* const guard_;
  const std::vector<std::string> program_;
  const std::function<void(absl::StatusOr<ExitStatus>)> on_end_;
  bool is_reading_ = false;
  bool is_finished_ = false;
  std::string unread_;
  RemoteOrders orders_;
  std::optional<TimerId> kill_timer_;
  std::unique_ptr<Process> process_;
};

absl::StatusOr<ExitStatus> RunProgram(const std::vector<std::string>& program) {
  if (program.empty()) {
    return absl::InvalidArgumentError("no program is given; it and its arguments come after --");
  }
  signal(SIGPIPE, SIG_IGN);  // of a guard that is gone
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGuard> guard, ProcessGuard::Start());
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  const std::unique_ptr<Event> has_ended = environment->MakeEvent();
  const std::unique_ptr<Event> is_destroyed = environment->MakeEvent();
  absl::StatusOr<ExitStatus> result = ExitStatus();
  const std::unique_ptr<Reactor> reactor = environment->StartReactor("node");
  auto node = std::make_unique<RemoteNode>(reactor.get(), guard.get(), program,
                                           [&](absl::StatusOr<ExitStatus> how) {
                                             result = std::move(how);
                                             has_ended->Set();
                                           });
  BRAID_ASSIGN_OR_RETURN(
      std::unique_ptr<SignalWatcher> signals,
      SignalWatcher::Start(reactor.get(), {SIGINT, SIGTERM, SIGHUP}, [&](int) { node->End(); }));
  reactor->Post([&] { node->Start(); });
  AwaitEnd(*environment, *has_ended);
  signals.reset();
  reactor->Post([&] {
    node.reset();
    is_destroyed->Set();
  });
  AwaitEnd(*environment, *is_destroyed);
  return result;
}

int RunNode(const ToolArguments& arguments) {
  const absl::StatusOr<ExitStatus> result = RunProgram(arguments.program);
  if (result.ok()) return result->ShellCode();
  std::cerr << "error: " << result.status().message() << "\n";
  return absl::IsNotFound(result.status()) ? kNotFound : kNotExecutable;
}

}  // namespace

Subcommand NodeSubcommand() {
  return {
      .name = "node",
      .summary = "",
      .usage = "the far end of braid launch over ssh; not for people.\n",
      .files = {"api/tool/node.cc"},
      .run = RunNode,
  };
}

}  // namespace braid
