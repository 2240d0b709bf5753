#include "runtime/base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "gtest/gtest.h"
#include "runtime/base/reactor.h"

namespace braid {
namespace {

constexpr Nanoseconds kSignalsPatience = 60 * kSecond;

bool IsBlockedHere(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

class SignalWatcherTest : public testing::Test {
 protected:
  bool IsBlockedOnReactor(int signal) {
    bool is_blocked = false;
    const auto done = environment_->MakeEvent();
    reactor_->Post([&] {
      is_blocked = IsBlockedHere(signal);
      done->Set();
    });
    EXPECT_EQ(environment_->Await(*done, kSignalsPatience), absl::OkStatus());
    return is_blocked;
  }

  std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("signals");
};

TEST_F(SignalWatcherTest, BringsSignalsToTheReactor) {
  const auto done = environment_->MakeEvent();
  std::vector<int> seen;
  bool is_in_thread = true;
  auto watcher = SignalWatcher::Start(reactor_.get(), {SIGINT, SIGTERM}, [&](int signal) {
    seen.push_back(signal);
    is_in_thread = is_in_thread && reactor_->InThread();
    if (signal == SIGINT) kill(getpid(), SIGTERM);
    if (signal == SIGTERM) done->Set();
  });
  ASSERT_EQ(watcher.status(), absl::OkStatus());
  ASSERT_EQ(kill(getpid(), SIGINT), 0);  // to the process, whichever thread the kernel picks
  ASSERT_EQ(environment_->Await(*done, kSignalsPatience), absl::OkStatus());
  watcher->reset();
  EXPECT_EQ(seen, (std::vector<int>{SIGINT, SIGTERM}));
  EXPECT_TRUE(is_in_thread);
}

TEST_F(SignalWatcherTest, RestoresTheMasks) {
  ASSERT_FALSE(IsBlockedHere(SIGUSR1));
  auto watcher = SignalWatcher::Start(reactor_.get(), {SIGUSR1}, [](int) {});
  ASSERT_EQ(watcher.status(), absl::OkStatus());
  EXPECT_TRUE(IsBlockedHere(SIGUSR1));
  EXPECT_TRUE(IsBlockedOnReactor(SIGUSR1));
  watcher->reset();
  EXPECT_FALSE(IsBlockedHere(SIGUSR1));
  EXPECT_FALSE(IsBlockedOnReactor(SIGUSR1));
}

// Says when something has been posted to the reactor that it stands before.
class ReactorWithNotice final : public Reactor {
 public:
  explicit ReactorWithNotice(Reactor* reactor) : reactor_(*reactor) {}

  void OnPosted(std::function<void()> fn) { on_posted_ = std::move(fn); }

  Nanoseconds Now() const override { return reactor_.Now(); }
  void Post(absl::AnyInvocable<void()> fn) override {
    reactor_.Post(std::move(fn));
    if (on_posted_) on_posted_();
  }
  void Wake() override { reactor_.Wake(); }
  void SetPollable(Pollable* pollable) override { reactor_.SetPollable(pollable); }
  void RemovePollable(Pollable* pollable) override { reactor_.RemovePollable(pollable); }
  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    return reactor_.RunAfter(delay, std::move(fn));
  }
  void CancelTimer(TimerId id) override { reactor_.CancelTimer(id); }
  absl::Status Watch(int descriptor, Readiness interest,
                     std::function<void(Readiness)> fn) override {
    return reactor_.Watch(descriptor, interest, std::move(fn));
  }
  absl::Status SetInterest(int descriptor, Readiness interest) override {
    return reactor_.SetInterest(descriptor, interest);
  }
  void Unwatch(int descriptor) override { reactor_.Unwatch(descriptor); }
  bool InThread() const override { return reactor_.InThread(); }

 private:
  Reactor& reactor_;
  std::function<void()> on_posted_;
};

// The reactor is busy until the watcher's end is posted, so it cannot see the signals before.
TEST_F(SignalWatcherTest, BringsWhatCameBeforeItEnds) {
  std::vector<int> seen;
  ReactorWithNotice reactor(reactor_.get());
  auto watcher = SignalWatcher::Start(&reactor, {SIGINT, SIGTERM},
                                      [&](int signal) { seen.push_back(signal); });
  ASSERT_EQ(watcher.status(), absl::OkStatus());
  const auto is_ending = environment_->MakeEvent();
  reactor.Post([&] { environment_->Await(*is_ending, kSignalsPatience).IgnoreError(); });
  ASSERT_EQ(kill(getpid(), SIGINT), 0);
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  reactor.OnPosted([&] { is_ending->Set(); });
  watcher->reset();
  EXPECT_EQ(seen, (std::vector<int>{SIGINT, SIGTERM}));
}

TEST_F(SignalWatcherTest, LeavesIgnoredSignalsIgnored) {
  const auto handler = signal(SIGHUP, SIG_IGN);
  const auto done = environment_->MakeEvent();
  std::vector<int> seen;
  auto watcher = SignalWatcher::Start(reactor_.get(), {SIGHUP, SIGUSR1}, [&](int signal) {
    seen.push_back(signal);
    done->Set();
  });
  ASSERT_EQ(watcher.status(), absl::OkStatus());
  EXPECT_FALSE(IsBlockedHere(SIGHUP));
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  ASSERT_EQ(environment_->Await(*done, kSignalsPatience), absl::OkStatus());
  watcher->reset();
  signal(SIGHUP, handler);
  EXPECT_EQ(seen, std::vector<int>{SIGUSR1});
}

}  // namespace
}  // namespace braid
