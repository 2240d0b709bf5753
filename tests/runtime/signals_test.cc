#include "runtime/base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/reactor.h"

namespace braid {
namespace {

constexpr Nanoseconds kPatience = 60 * kSecond;

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
    EXPECT_EQ(environment_->Await(*done, kPatience), absl::OkStatus());
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
  ASSERT_EQ(environment_->Await(*done, kPatience), absl::OkStatus());
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

// The reactor is busy until the watcher ends, so it cannot see the signals before.
TEST_F(SignalWatcherTest, BringsWhatCameBeforeItEnds) {
  std::vector<int> seen;
  auto watcher = SignalWatcher::Start(reactor_.get(), {SIGINT, SIGTERM},
                                      [&](int signal) { seen.push_back(signal); });
  ASSERT_EQ(watcher.status(), absl::OkStatus());
  reactor_->Post([] {
    kill(getpid(), SIGINT);
    kill(getpid(), SIGTERM);
    usleep(200'000);
  });
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
  ASSERT_EQ(environment_->Await(*done, kPatience), absl::OkStatus());
  watcher->reset();
  signal(SIGHUP, handler);
  EXPECT_EQ(seen, std::vector<int>{SIGUSR1});
}

}  // namespace
}  // namespace braid
