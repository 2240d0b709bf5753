#include "runtime/base/reactor.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/one_processor.h"

namespace braid {
namespace {

constexpr Nanoseconds kPatience = 20 * kSecond;

enum class ReactorKind { kReal, kSimulated };

class ReactorTest : public testing::TestWithParam<ReactorKind> {
 protected:
  std::unique_ptr<Environment> Make(uint64_t seed = 1) {
    return GetParam() == ReactorKind::kReal ? MakeRealEnvironment()
                                            : MakeSimulatedEnvironment(seed);
  }
};

INSTANTIATE_TEST_SUITE_P(Both, ReactorTest,
                         testing::Values(ReactorKind::kReal, ReactorKind::kSimulated),
                         [](const auto& info) {
                           return info.param == ReactorKind::kReal ? "Real" : "Simulated";
                         });

TEST_P(ReactorTest, PostsOfOnePosterRunInOrderOnTheReactorsThread) {
  auto environment = Make();
  auto done = environment->MakeEvent();
  std::vector<int> order;
  bool is_in_thread = true;
  auto reactor = environment->StartReactor("r");
  EXPECT_FALSE(reactor->InThread());
  for (int i = 0; i < 1000; ++i) {
    reactor->Post([&, i] {
      order.push_back(i);
      is_in_thread = is_in_thread && reactor->InThread();
    });
  }
  reactor->Post([&] { done->Set(); });
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(is_in_thread);
}

TEST_P(ReactorTest, TimersRunWhenDueInOrderOfTheirDeadlines) {
  auto environment = Make();
  auto done = environment->MakeEvent();
  auto reactor = environment->StartReactor("r");
  std::vector<std::string> order;
  Nanoseconds start = 0;
  Nanoseconds late = 0;
  reactor->Post([&] {
    start = reactor->Now();
    reactor->RunAfter(30 * kMillisecond, [&] {
      order.push_back("30");
      late = reactor->Now() - start;
      done->Set();
    });
    const TimerId cancelled =
        reactor->RunAfter(10 * kMillisecond, [&] { order.push_back("cancelled"); });
    reactor->RunAfter(5 * kMillisecond, [&, cancelled] {
      order.push_back("5");
      reactor->CancelTimer(cancelled);
      reactor->RunAfter(15 * kMillisecond, [&] { order.push_back("20"); });
    });
  });
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  EXPECT_EQ(order, (std::vector<std::string>{"5", "20", "30"}));
  EXPECT_GE(late, 30 * kMillisecond);
}

TEST_P(ReactorTest, AwaitEndsAtItsDeadline) {
  auto environment = Make();
  auto never = environment->MakeEvent();
  auto reactor = environment->StartReactor("r");
  reactor->Post([&] { reactor->RunAfter(3600 * kSecond, [&] { never->Set(); }); });
  const Nanoseconds start = environment->Now();
  EXPECT_EQ(environment->Await(*never, 20 * kMillisecond).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(environment->Now() - start, 20 * kMillisecond);
  EXPECT_FALSE(never->is_set());
}

// Now and for ever are more than a number holds.
TEST_P(ReactorTest, WhatComesNeverIsNotDueNow) {
  auto environment = Make();
  auto never = environment->MakeEvent(), soon = environment->MakeEvent();
  auto reactor = environment->StartReactor("r");
  reactor->Post([&] {
    reactor->RunAfter(std::numeric_limits<int64_t>::max(), [&] { never->Set(); });
    reactor->RunAfter(5 * kMillisecond, [&] { soon->Set(); });
  });
  ASSERT_EQ(environment->Await(*soon, kPatience), absl::OkStatus());
  EXPECT_FALSE(never->is_set());
}

TEST_P(ReactorTest, DestructionRunsWhatWasPostedBefore) {
  auto environment = Make();
  std::atomic<int> ran = 0;
  for (int round = 0; round < 20; ++round) {
    auto reactor = environment->StartReactor("r");
    for (int i = 0; i < 10; ++i) reactor->Post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 200);
}

// Counts down what it was given; asks to be called again while something is left.
class CountingPollable : public Pollable {
 public:
  explicit CountingPollable(Event* done) : done_(*done) {}
  bool Poll() override {
    ++polls;
    if (work == 0) return false;
    if (--work == 0) done_.Set();
    return work != 0;
  }
  std::atomic<int> work{0};
  std::atomic<int> polls{0};

 private:
  Event& done_;
};

TEST_P(ReactorTest, WakePollsUntilNothingIsLeft) {
  auto environment = Make();
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  CountingPollable pollable(done.get());
  reactor->SetPollable(&pollable);
  pollable.work = 100;
  reactor->Wake();
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  EXPECT_GE(pollable.polls, 100);
  auto removed = environment->MakeEvent();
  reactor->Post([&] {
    reactor->RemovePollable(&pollable);
    removed->Set();
  });
  ASSERT_EQ(environment->Await(*removed, kPatience), absl::OkStatus());
  const int polls = pollable.polls;
  reactor->Wake();
  auto passed = environment->MakeEvent();
  reactor->Post([&] { passed->Set(); });
  ASSERT_EQ(environment->Await(*passed, kPatience), absl::OkStatus());
  EXPECT_EQ(pollable.polls, polls);
}

// Hundreds of actor threads cost no descriptor; the tenth of a second is a timer's.
TEST(RealReactorTest, ADescriptorIsNeededToWatchOnly) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  auto environment = MakeRealEnvironment();
  const auto before = open_files();
  std::vector<std::unique_ptr<Reactor>> reactors;
  std::vector<std::unique_ptr<Event>> rang;
  for (int i = 0; i < 100; ++i) {
    reactors.push_back(environment->StartReactor("r"));
    rang.push_back(environment->MakeEvent());
    reactors[i]->Post([reactor = reactors[i].get(), done = rang[i].get()] {
      reactor->RunAfter(100 * kMillisecond, [done] { done->Set(); });
    });
  }
  for (auto& event : rang) ASSERT_EQ(environment->Await(*event, kPatience), absl::OkStatus());
  EXPECT_EQ(open_files(), before);

  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  absl::Status watched;
  auto is_told = environment->MakeEvent();
  reactors[0]->Post([&] {
    watched = reactors[0]->Watch(STDIN_FILENO, {.readable = true}, [](Reactor::Readiness) {});
    is_told->Set();
  });
  const absl::Status awaited = environment->Await(*is_told, kPatience);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(awaited, absl::OkStatus());
  EXPECT_NE(watched.message().find("cannot wait for descriptors: Too many open files"),
            std::string::npos)
      << watched;
}

TEST(RealReactorTest, PostsOfManyThreadsKeepEachPostersOrder) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  constexpr int kPosters = 4;
  constexpr int kPosts = 2000;
  std::vector<int> next(kPosters, 0);
  bool is_ordered = true;
  int count = 0;
  auto done = environment->MakeEvent();
  std::vector<std::thread> posters;
  for (int p = 0; p < kPosters; ++p) {
    posters.emplace_back([&, p] {
      for (int i = 0; i < kPosts; ++i) {
        reactor->Post([&, p, i] {
          is_ordered = is_ordered && next[p]++ == i;
          if (++count == kPosters * kPosts) done->Set();
        });
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  EXPECT_TRUE(is_ordered);
}

// The poster has the lowest priority in the end, so that it does not come back from its last Post
// before what it posted has run and the reactor is destroyed. That Post takes long, since the queue
// has to grow: the reactor waits for it, and runs at once when the function is in. The sleeps are
// the poster's time on the one processor: how long they take decides which order is tried, never
// whether a right reactor passes.
void DestroyReactorsThatAreStillPostedTo() {
  KeepToOneProcessor();
  constexpr int kBefore = 1 << 12;  // there is room for so many, and for no more
  auto environment = MakeRealEnvironment();
  for (int round = 0; round < 20; ++round) {
    auto has_run = environment->MakeEvent();
    auto poster = environment->StartReactor("poster");
    auto reactor = environment->StartReactor("short");
    std::atomic<bool> is_last = false;
    reactor->Post([&is_last, round] {
      while (!is_last) std::this_thread::sleep_for(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(4 * round));
    });
    poster->Post([&is_last, reactor = reactor.get(), has_run = has_run.get()] {
      for (int i = 0; i < kBefore; ++i) reactor->Post([] {});
      is_last = true;
      const sched_param lowest = {};
      sched_setscheduler(0, SCHED_IDLE, &lowest);  // where it may not, less is seen
      reactor->Post([has_run] { has_run->Set(); });
    });
    ASSERT_EQ(environment->Await(*has_run, kPatience), absl::OkStatus());
    reactor.reset();
  }
}

TEST(RealReactorTest, MayBeDestroyedAsSoonAsWhatWasPostedHasRun) {
  std::thread(DestroyReactorsThatAreStillPostedTo).join();
}

TEST(RealReactorTest, WatchTellsOfReadinessUntilUnwatch) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  auto was_writable = environment->MakeEvent();
  auto was_closed = environment->MakeEvent();
  std::string received;
  reactor->Post([&] {
    EXPECT_EQ(reactor->Watch(ends[0], {.readable = true},
                             [&](Reactor::Readiness ready) {
                               EXPECT_TRUE(ready.readable);
                               char bytes[16];
                               const ssize_t n = read(ends[0], bytes, sizeof(bytes));
                               if (n > 0) {
                                 received.append(bytes, n);
                                 return;
                               }
                               reactor->Unwatch(ends[0]);
                               was_closed->Set();
                             }),
              absl::OkStatus());
    EXPECT_EQ(reactor->Watch(ends[1], {.writable = true},
                             [&](Reactor::Readiness ready) {
                               EXPECT_TRUE(ready.writable);
                               reactor->Unwatch(ends[1]);
                               was_writable->Set();
                             }),
              absl::OkStatus());
  });
  ASSERT_EQ(environment->Await(*was_writable, kPatience), absl::OkStatus());
  ASSERT_EQ(write(ends[1], "braid", 5), 5);
  close(ends[1]);
  ASSERT_EQ(environment->Await(*was_closed, kPatience), absl::OkStatus());
  EXPECT_EQ(received, "braid");
  reactor.reset();
  close(ends[0]);
}

TEST(RealReactorTest, ASecondWatchReplacesTheFirst) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  auto done = environment->MakeEvent();
  bool was_first_called = false;
  reactor->Post([&] {
    // Readable only: silent until the peer writes.
    ASSERT_EQ(reactor->Watch(ends[0], {.readable = true},
                             [&](Reactor::Readiness) { was_first_called = true; }),
              absl::OkStatus());
    ASSERT_EQ(reactor->Watch(ends[0], {.readable = true, .writable = true},
                             [&](Reactor::Readiness ready) {
                               EXPECT_TRUE(ready.writable);
                               reactor->Unwatch(ends[0]);
                               done->Set();
                             }),
              absl::OkStatus());
  });
  EXPECT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  reactor.reset();
  EXPECT_FALSE(was_first_called);
  close(ends[0]);
  close(ends[1]);
}

TEST(RealReactorTest, AnotherInterestKeepsTheFunction) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  auto was_writable = environment->MakeEvent();
  auto was_readable = environment->MakeEvent();
  bool is_wanted = false;
  reactor->Post([&] {
    ASSERT_EQ(reactor->Watch(ends[0], {.readable = true},
                             [&](Reactor::Readiness ready) {
                               EXPECT_TRUE(is_wanted);
                               if (ready.writable) {
                                 EXPECT_EQ(reactor->SetInterest(ends[0], {.readable = true}),
                                           absl::OkStatus());
                                 was_writable->Set();
                               } else {
                                 reactor->Unwatch(ends[0]);
                                 was_readable->Set();
                               }
                             }),
              absl::OkStatus());
    is_wanted = true;
    ASSERT_EQ(reactor->SetInterest(ends[0], {.readable = true, .writable = true}),
              absl::OkStatus());
  });
  ASSERT_EQ(environment->Await(*was_writable, kPatience), absl::OkStatus());
  ASSERT_EQ(write(ends[1], "b", 1), 1);
  ASSERT_EQ(environment->Await(*was_readable, kPatience), absl::OkStatus());
  reactor.reset();
  close(ends[0]);
  close(ends[1]);
}

TEST(RealReactorTest, ADescriptorThatCannotBeWatchedIsAnError) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  absl::Status status;
  reactor->Post([&] {
    status = reactor->Watch(1 << 20, {.readable = true}, [](Reactor::Readiness) {});
    done->Set();
  });
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("1048576"), std::string::npos) << status;
}

TEST(RealReactorTest, SleepsWithoutUsingTheProcessor) {
  auto environment = MakeRealEnvironment();
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  CountingPollable pollable(done.get());
  reactor->SetPollable(&pollable);
  reactor->Post([&] { reactor->RunAfter(50 * kMillisecond, [&] { done->Set(); }); });
  ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  reactor.reset();
  EXPECT_LT(pollable.polls, 20);
}

// Reactors that post to each other and set timers; the order of events as a text.
std::string OrderOfEvents(uint64_t seed) {
  auto environment = MakeSimulatedEnvironment(seed);
  std::vector<std::unique_ptr<Reactor>> reactors;
  for (int i = 0; i < 3; ++i) reactors.push_back(environment->StartReactor("r"));
  auto done = environment->MakeEvent();
  std::string order;
  int left = 9;
  for (int i = 0; i < 3; ++i) {
    reactors[i]->Post([&, i] {
      order += static_cast<char>('a' + i);
      for (int j = 0; j < 3; ++j) {
        reactors[i]->RunAfter(kMillisecond, [&, i, j] {
          reactors[j]->Post([&, i, j] {
            order += static_cast<char>('0' + 3 * i + j);
            if (--left == 0) done->Set();
          });
        });
      }
    });
  }
  EXPECT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
  order += " at " + std::to_string(environment->Now());
  return order;
}

TEST(SimulatedReactorTest, ASeedDecidesTheOrder) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string order = OrderOfEvents(seed);
    EXPECT_EQ(order, OrderOfEvents(seed));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 90u);
}

TEST(SimulatedReactorTest, KeepsEachPostersOrderAndMixesPosters) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    auto a = environment->StartReactor("a");
    auto b = environment->StartReactor("b");
    auto target = environment->StartReactor("target");
    auto done = environment->MakeEvent();
    std::vector<int> order;
    const auto post = [&](int value) {
      target->Post([&, value] {
        order.push_back(value);
        if (order.size() == 4) done->Set();
      });
    };
    a->Post([&] { post(1), post(2); });
    b->Post([&] { post(11), post(12); });
    ASSERT_EQ(environment->Await(*done, kPatience), absl::OkStatus());
    const auto at = [&](int value) {
      return std::find(order.begin(), order.end(), value) - order.begin();
    };
    EXPECT_LT(at(1), at(2));
    EXPECT_LT(at(11), at(12));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6u);  // all merges of two pairs
}

TEST(SimulatedReactorTest, TheClockJumpsAndAnImpossibleWaitEnds) {
  auto environment = MakeSimulatedEnvironment(3);
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  reactor->Post([&] { reactor->RunAfter(1000 * kSecond, [&] { done->Set(); }); });
  ASSERT_EQ(environment->Await(*done, 2000 * kSecond), absl::OkStatus());
  EXPECT_GE(environment->Now(), 1000 * kSecond);
  EXPECT_LT(environment->Now(), 1001 * kSecond);
  auto never = environment->MakeEvent();
  EXPECT_EQ(environment->Await(*never, kPatience).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(reactor->Watch(0, {.readable = true}, [](Reactor::Readiness) {}).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(SimulatedReactorTest, TimersFallDueAlsoInABusyCluster) {
  std::function<void()> spin;  // the reactor runs what is left when it ends
  auto environment = MakeSimulatedEnvironment(5);
  auto reactor = environment->StartReactor("r");
  auto done = environment->MakeEvent();
  spin = [&] { reactor->Post(spin); };
  reactor->Post(spin);
  reactor->Post([&] { reactor->RunAfter(kMillisecond, [&] { done->Set(); }); });
  EXPECT_EQ(environment->Await(*done, kSecond), absl::OkStatus());
}

}  // namespace
}  // namespace braid
