#include "api/tool/run_launch.h"

#include <signal.h>

#include <functional>
#include <memory>
#include <utility>

#include "api/tool/await_end.h"
#include "api/tool/launch_machine.h"
#include "api/tool/launch_master.h"
#include "api/tool/launcher_rendezvous.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/process.h"
#include "runtime/base/process_guard.h"
#include "runtime/base/reactor.h"
#include "runtime/base/signals.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

class LaunchRun {
 public:
  explicit LaunchRun(LaunchOptions options) : options_(std::move(options)) {}

  absl::StatusOr<LaunchOutcome> Run() {
    // That nobody reads the output any more is noticed where it is written.
    ::signal(SIGPIPE, SIG_IGN);
    // Before there are threads.
    BRAID_ASSIGN_OR_RETURN(guard_, ProcessGuard::Start());
    reactor_ = environment_->StartReactor("launch");
    BRAID_ASSIGN_OR_RETURN(std::unique_ptr<SignalWatcher> signals,
                           SignalWatcher::Start(reactor_.get(), {SIGINT, SIGTERM, SIGHUP},
                                                [this](int signal) { OnSignal(signal); }));
    if (options_.place.has_value()) {
      ExitStatus end;
      const absl::Status joined = Join(end);
      if (!end.ok()) {
        return LaunchOutcome{.exit_code = end.ShellCode(), .cause = "ended by " + end.ToString()};
      }
      BRAID_RETURN_IF_ERROR(joined);
    }
    const std::unique_ptr<Event> has_ended = environment_->MakeEvent();
    LaunchOutcome outcome;
    OnReactor([&] {
      Start([&](const LaunchOutcome& how) {
        outcome = how;
        has_ended->Set();
      });
    });
    if (rendezvous_ != nullptr) {
      rendezvous_->SetStatusSource([this](std::function<void(std::string)> done) {
        reactor_->Post([this, done = std::move(done)] { done(master_->Describe()); });
      });
    }
    AwaitEnd(*environment_, *has_ended);
    if (rendezvous_ != nullptr) rendezvous_->SetStatusSource(nullptr);
    signals.reset();
    OnReactor([&] {
      machine_.reset();
      master_.reset();
    });
    return outcome;
  }

 private:
  void OnReactor(const std::function<void()>& fn) {
    const std::unique_ptr<Event> is_done = environment_->MakeEvent();
    reactor_->Post([&] {
      fn();
      is_done->Set();
    });
    AwaitEnd(*environment_, *is_done);
  }

  // All but Join on the reactor's thread.

  void OnSignal(int signal) {
    if (machine_ != nullptr) return machine_->OnSignal(signal);
    signal_ = signal;
    if (is_joining_) AbortJoin();
  }

  void AbortJoin() {
    rendezvous_->Abort(Prefixed(
        place(), absl::CancelledError("its launcher was ended by " + DescribeSignal(*signal_))));
  }

  // `end`: the signal that ended it, if one did.
  absl::Status Join(ExitStatus& end) {
    BRAID_ASSIGN_OR_RETURN(rendezvous_, LauncherRendezvous::Start(environment_.get(),
                                                                  *options_.place, options_.terms));
    OnReactor([this] {
      is_joining_ = true;
      if (signal_.has_value()) AbortJoin();
    });
    const absl::Status joined = rendezvous_->Join();
    OnReactor([&] {
      is_joining_ = false;
      if (!joined.ok()) end.signal = signal_.value_or(0);
    });
    return joined;
  }

  void Start(std::function<void(const LaunchOutcome&)> on_end) {
    LaunchMachine::Options options{.commands = std::move(options_.commands),
                                   .max_restarts = options_.max_restarts,
                                   .guard = guard_.get(),
                                   .tag_output = options_.tag_output,
                                   .place = place(),
                                   .on_end = std::move(on_end)};
    if (options_.place.has_value() && options_.place->cluster.rank > 0) {
      options.master = NodeName(options_.place->cluster, 0);
      options.channel = rendezvous_->TakeMaster(reactor_.get());
    } else {
      options.channel = StartMaster();
    }
    machine_ = std::make_unique<LaunchMachine>(reactor_.get(), std::move(options));
    machine_->Start();
    if (signal_.has_value()) machine_->OnSignal(*signal_);
  }

  // Returns this machine's own way to it.
  std::unique_ptr<ControlChannel> StartMaster() {
    auto [master_end, machine_end] = MakeLoopbackControlPair(reactor_.get(), reactor_.get());
    LaunchMaster::Options options{.max_restarts = options_.max_restarts};
    options.machines.push_back({.name = place(), .channel = std::move(master_end)});
    if (rendezvous_ != nullptr) {
      options.choose_port = [this] { return rendezvous_->ChoosePort(); };
      for (LaunchMaster::Machine& other : rendezvous_->TakeOthers(reactor_.get())) {
        options.machines.push_back(std::move(other));
      }
    }
    master_ = std::make_unique<LaunchMaster>(reactor_.get(), std::move(options));
    master_->Start();
    return std::move(machine_end);
  }

  std::string place() const {
    return options_.place.has_value() ? NameMachine(options_.place->cluster.rank, HostName()) : "";
  }

  LaunchOptions options_;
  std::unique_ptr<ProcessGuard> guard_;
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  std::unique_ptr<LauncherRendezvous> rendezvous_;
  // The reactor's.
  bool is_joining_ = false;
  std::optional<int> signal_;  // that came before there was a machine
  std::unique_ptr<LaunchMaster> master_;
  std::unique_ptr<LaunchMachine> machine_;
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace

absl::StatusOr<LaunchOutcome> RunLaunch(LaunchOptions options) {
  return LaunchRun(std::move(options)).Run();
}

}  // namespace braid
