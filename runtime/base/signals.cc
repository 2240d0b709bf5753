#include "runtime/base/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "glog/logging.h"

namespace braid {
namespace {

bool IsIgnored(int signal) {
  struct sigaction current;
  return sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalWatcher>> SignalWatcher::Start(Reactor* reactor,
                                                                    const std::vector<int>& signals,
                                                                    std::function<void(int)> fn) {
  CHECK(!reactor->InThread()) << "a SignalWatcher starts from another thread than its reactor's";
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : signals) {
    // Blocked signals are delivered to a descriptor even if they are ignored.
    if (!IsIgnored(signal)) sigaddset(&watched, signal);
  }
  Descriptor descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor.is_open()) return absl::ErrnoToStatus(errno, "cannot watch signals");

  std::unique_ptr<SignalWatcher> watcher(new SignalWatcher(reactor, std::move(fn)));
  watcher->signals_ = std::move(descriptor);
  pthread_sigmask(SIG_BLOCK, &watched, &watcher->mask_before_);
  absl::Status status;
  watcher->RunOnReactor([&] {
    pthread_sigmask(SIG_BLOCK, &watched, &watcher->reactor_mask_before_);
    status = reactor->Watch(watcher->signals_.number(), {.readable = true},
                            [watcher = watcher.get()](Reactor::Readiness) { watcher->Deliver(); });
  });
  if (!status.ok()) return status;
  return watcher;
}

SignalWatcher::SignalWatcher(Reactor* reactor, std::function<void(int)> fn)
    : reactor_(reactor), fn_(std::move(fn)) {}

SignalWatcher::~SignalWatcher() {
  RunOnReactor([&] {
    while (Deliver()) continue;
    reactor_->Unwatch(signals_.number());
    pthread_sigmask(SIG_SETMASK, &reactor_mask_before_, nullptr);
  });
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void SignalWatcher::RunOnReactor(const std::function<void()>& fn) {
  constexpr Nanoseconds kPatience = 60 * kSecond;
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  const std::unique_ptr<Event> done = environment->MakeEvent();
  reactor_->Post([&] {
    fn();
    done->Set();
  });
  CHECK(environment->Await(*done, kPatience).ok()) << "the signals' reactor does not run";
}

bool SignalWatcher::Deliver() {
  signalfd_siginfo info;
  const ssize_t bytes = read(signals_.number(), &info, sizeof(info));
  if (bytes != sizeof(info)) return false;
  fn_(static_cast<int>(info.ssi_signo));
  return true;
}

}  // namespace braid
