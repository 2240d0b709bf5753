// How threads of reactors wake each other, and what they do before they sleep.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/processors.h"
#include "runtime/base/reactor.h"

namespace braid {
namespace {

constexpr Nanoseconds kLongestVolley = 20 * kSecond;

// Two reactors, each of which only ever runs because the other woke it, until both were `hits`
// times. With `change_after` they begin or end to watch something after so many hits.
class Volley {
 public:
  Volley(int hits, int change_after)
      : hits_(hits),
        change_after_(change_after),
        done_(environment_->MakeEvent()),
        left_(this, "ping"),
        right_(this, "pong") {}

  // How many hits there were.
  int Play() {
    left_.Hit();
    EXPECT_EQ(environment_->Await(*done_, kLongestVolley), absl::OkStatus());
    left_.Stop();
    right_.Stop();
    return left_.hits();
  }

 private:
  class Side : public Pollable {
   public:
    Side(Volley* volley, const char* name)
        : volley_(*volley), reactor_(volley->environment_->StartReactor(name)) {
      reactor_->SetPollable(this);
    }

    // By the other side.
    void Hit() {
      ball_ = true;
      reactor_->Wake();
    }
    void Stop() { reactor_.reset(); }
    int hits() const { return hits_; }

    bool Poll() override {
      if (!ball_.exchange(false)) return false;
      if (volley_.change_after_ > 0 && hits_ % volley_.change_after_ == 0) Change();
      if (++hits_ == volley_.hits_) {
        volley_.done_->Set();
      } else {
        (this == &volley_.left_ ? volley_.right_ : volley_.left_).Hit();
      }
      return false;
    }

   private:
    void Change() {
      const int descriptor = pipe_.read_end.number();
      if (std::exchange(is_watching_, !is_watching_)) return reactor_->Unwatch(descriptor);
      EXPECT_EQ(reactor_->Watch(descriptor, {.readable = true}, [](Reactor::Readiness) {}),
                absl::OkStatus());
    }

    Volley& volley_;
    std::atomic<bool> ball_{false};
    int hits_ = 0;
    bool is_watching_ = false;
    Pipe pipe_ = *MakePipe();
    std::unique_ptr<Reactor> reactor_;
  };

  const int hits_;
  const int change_after_;
  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  const std::unique_ptr<Event> done_;
  Side left_;
  Side right_;
};

// The sides sleep otherwise while they watch something.
class WakeTest : public ::testing::TestWithParam<int> {};  // the hits between two changes; 0: none

TEST_P(WakeTest, NoWakeIsLost) { EXPECT_EQ(Volley(20000, GetParam()).Play(), 20000); }

INSTANTIATE_TEST_SUITE_P(Changes, WakeTest, ::testing::Values(0, 1, 3, 20000));

// A thread that looks makes room for others, who may be there: the best of many counts.
TEST(ReactorWaitTest, WhatComesSoonFindsTheThreadAwake) {
  if (UsableProcessors() < 2) GTEST_SKIP() << "one processor";
  constexpr int kHits = 1000;
  int64_t least = INT64_MAX;
  for (int round = 0; round < 100 && least > kHits / 2; ++round) {
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    EXPECT_EQ(Volley(kHits, /*change_after=*/0).Play(), kHits);
    getrusage(RUSAGE_SELF, &after);
    least = std::min<int64_t>(least, after.ru_nvcsw - before.ru_nvcsw);
  }
  EXPECT_LE(least, kHits / 2) << "times that threads slept, of " << 2 * kHits << " waits";
}

// As on a host where other programs compute. A thread that looks, or yields, uses up its turn, and
// is last when there is something to do.
TEST(ReactorWaitTest, WhatComesSoonIsNotWaitedForLongWhereOthersCompute) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3 * UsableProcessors(); ++i) {
    others.emplace_back([&] {
      while (!is_over) continue;
    });
  }
  constexpr int kHits = 3000;
  // A fifth of what they take of turns that were used up; ten times what they take of sleepers.
  constexpr auto kLongest = kHits * std::chrono::microseconds(500);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Volley(kHits, /*change_after=*/0).Play(), kHits);
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLongest);
  is_over = true;
  for (std::thread& other : others) other.join();
}

TEST(ReactorWaitTest, WhoWaitsLongUsesNoProcessor) {
  constexpr int kWaits = 20;
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  int waits = 0;
  Nanoseconds began = 0, spent = 0;
  const auto used = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * kSecond + time.tv_nsec;
  };
  const std::function<void()> wait = [&] {
    if (waits++ == kWaits) {
      spent = used() - began;
      done->Set();
    } else {
      reactor->RunAfter(10 * kMillisecond, [&] { wait(); });
    }
  };
  reactor->Post([&] {
    began = used();
    wait();
  });
  ASSERT_EQ(environment->Await(*done, kLongestVolley), absl::OkStatus());
  EXPECT_LT(spent, kWaits * kMillisecond) << "nanoseconds, of waits of 10 ms each";
}

}  // namespace
}  // namespace braid
