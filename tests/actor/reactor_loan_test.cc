// A reactor whose loop other threads borrow while they wait for something that it does.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/reactor.h"

namespace braid {
namespace {

constexpr Nanoseconds kLoanPatience = 20 * kSecond;

class ReactorLoanTest : public testing::Test {
 protected:
  // That its own thread, or whoever has the loop, still does what is posted and what is due.
  void ExpectAlive() {
    const auto posted = environment_->MakeEvent(), timed = environment_->MakeEvent();
    reactor_->Post([&] {
      EXPECT_TRUE(reactor_->InThread());
      reactor_->RunAfter(kMillisecond, [&] { timed->Set(); });
      posted->Set();
    });
    EXPECT_EQ(environment_->Await(*posted, kLoanPatience), absl::OkStatus());
    EXPECT_EQ(environment_->Await(*timed, kLoanPatience), absl::OkStatus());
    EXPECT_FALSE(reactor_->InThread());
  }

  const std::unique_ptr<Environment> environment_ = MakeRealEnvironment();
  const std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("r");
};

TEST_F(ReactorLoanTest, TheBorrowersThreadIsTheReactors) {
  for (int turn = 0; turn < 3; ++turn) {
    bool is_done = false;
    std::thread::id ran_on;
    EXPECT_TRUE(reactor_->RunUntil(
        [&] {
          reactor_->RunAfter(2 * kMillisecond, [&] {
            EXPECT_TRUE(reactor_->InThread());
            ran_on = std::this_thread::get_id();
            is_done = true;
          });
        },
        [&] { return is_done; }));
    EXPECT_EQ(ran_on, std::this_thread::get_id());
    EXPECT_FALSE(reactor_->InThread());
  }
  ExpectAlive();
}

TEST_F(ReactorLoanTest, TheReactorsOwnThreadAndASecondBorrowerGetNothing) {
  const auto is_lent = environment_->MakeEvent(), ends = environment_->MakeEvent();
  std::thread borrower([&] {
    EXPECT_TRUE(reactor_->RunUntil(nullptr, [&] {
      is_lent->Set();
      return ends->is_set();
    }));
  });
  ASSERT_EQ(environment_->Await(*is_lent, kLoanPatience), absl::OkStatus());
  const auto ran = environment_->MakeEvent();
  bool is_refused_inside = false;
  // Refused, but what was to be posted is.
  EXPECT_FALSE(reactor_->RunUntil(nullptr, [] { return true; }));
  EXPECT_FALSE(reactor_->RunUntil(
      [&] {
        is_refused_inside = !reactor_->RunUntil(nullptr, [] { return true; });
        ran->Set();
      },
      [] { return false; }));
  EXPECT_EQ(environment_->Await(*ran, kLoanPatience), absl::OkStatus());
  EXPECT_TRUE(is_refused_inside);
  reactor_->Post([&] { ends->Set(); });
  borrower.join();
  ExpectAlive();
}

TEST_F(ReactorLoanTest, DescriptorsAreWatchedWhoeverHasTheLoop) {
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Descriptor near(ends[0]), far(ends[1]);
  std::atomic<int> bytes = 0;
  const auto watched = environment_->MakeEvent();
  reactor_->Post([&] {
    ASSERT_TRUE(reactor_
                    ->Watch(near.number(), {.readable = true},
                            [&](Reactor::Readiness) {
                              char byte = 0;
                              while (read(near.number(), &byte, 1) == 1) ++bytes;
                            })
                    .ok());
    watched->Set();
  });
  ASSERT_EQ(environment_->Await(*watched, kLoanPatience), absl::OkStatus());
  for (int i = 1; i <= 300; ++i) {
    ASSERT_EQ(write(far.number(), "x", 1), 1);
    if (i % 3 != 0) {
      EXPECT_TRUE(reactor_->RunUntil(nullptr, [&] { return bytes >= i; }));
    } else {
      // Nobody borrows the loop: its own thread sees to it.
      const auto began = std::chrono::steady_clock::now();
      while (bytes < i && std::chrono::steady_clock::now() - began < std::chrono::seconds(20)) {
        std::this_thread::yield();
      }
    }
    ASSERT_EQ(bytes, i);
  }
  const auto unwatched = environment_->MakeEvent();
  reactor_->Post([&] {
    reactor_->Unwatch(near.number());
    unwatched->Set();
  });
  EXPECT_EQ(environment_->Await(*unwatched, kLoanPatience), absl::OkStatus());
}

TEST_F(ReactorLoanTest, NoPostIsLostWhileTheLoopGoesFromHandToHand) {
  constexpr int kPosters = 2, kBorrowers = 2, kPosts = 4000;
  int ran = 0;  // on the loop only
  std::vector<std::thread> threads;
  for (int poster = 0; poster < kPosters; ++poster) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        reactor_->Post([&] { ++ran; });
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(150));
      }
    });
  }
  for (int borrower = 0; borrower < kBorrowers; ++borrower) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        const auto done = environment_->MakeEvent();
        reactor_->RunUntil(
            [&] {
              ++ran;
              done->Set();
            },
            [&] { return done->is_set(); });
        ASSERT_EQ(environment_->Await(*done, kLoanPatience), absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto done = environment_->MakeEvent();
  reactor_->Post([&] { done->Set(); });
  ASSERT_EQ(environment_->Await(*done, kLoanPatience), absl::OkStatus());
  EXPECT_EQ(ran, (kPosters + kBorrowers) * kPosts);
  ExpectAlive();
}

TEST_F(ReactorLoanTest, MayBeDestroyedWhileNobodyHasTheLoop) {
  for (int turn = 0; turn < 100; ++turn) {
    bool is_done = false, is_run = false;  // outlive the reactor
    const std::unique_ptr<Reactor> reactor = environment_->StartReactor("short");
    EXPECT_TRUE(reactor->RunUntil([&] { is_done = true; }, [&] { return is_done; }));
    reactor->Post([&is_run] { is_run = true; });
  }
}

// Where nothing may come that tells nobody, the loop stays free for as long as nobody wants it.
TEST_F(ReactorLoanTest, StaysFreeUntilSomethingComes) {
  const auto borrow = [&](absl::AnyInvocable<void()> first) {
    bool is_done = false;
    EXPECT_TRUE(reactor_->RunUntil(
        [&] {
          if (first) first();
          is_done = true;
        },
        [&] { return is_done; }));
  };
  for (int turn = 0; turn < 3; ++turn) {
    borrow(nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    borrow(nullptr);
    ExpectAlive();
  }
  // A timer that a borrower leaves behind is seen to.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto timed = environment_->MakeEvent();
  borrow([&] { reactor_->RunAfter(5 * kMillisecond, [&] { timed->Set(); }); });
  EXPECT_EQ(environment_->Await(*timed, kLoanPatience), absl::OkStatus());
}

// Who borrows the loop and finds that there is nothing to wait for hands on what was posted.
TEST_F(ReactorLoanTest, AnEmptyLoanLosesNoPost) {
  for (int i = 0; i < 300; ++i) {
    const auto done = environment_->MakeEvent();
    std::thread poster([&] { reactor_->Post([&] { done->Set(); }); });
    reactor_->RunUntil(nullptr, [] { return true; });
    reactor_->RunUntil(nullptr, [] { return true; });
    EXPECT_EQ(environment_->Await(*done, kLoanPatience), absl::OkStatus()) << i;
    poster.join();
  }
}

TEST_F(ReactorLoanTest, SleepsOnceItIsNotBorrowedAnyMore) {
  bool is_done = false;
  EXPECT_TRUE(reactor_->RunUntil([&] { is_done = true; }, [&] { return is_done; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
  };
  const int64_t before = switches();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LE(switches() - before, 10);
}

// Memory that somebody else writes, as it stands between two processes.
class Mailbox final : public Lookout {
 public:
  explicit Mailbox(Reactor& reactor) : reactor_(reactor) {}

  void Put() { put_.fetch_add(1); }
  bool sleeps() const { return sleeps_; }

  bool Look() override {
    EXPECT_TRUE(reactor_.InThread());
    if (put_.load() == taken_) return false;
    taken_ = put_.load();
    return true;
  }
  bool Sleep() override {
    EXPECT_TRUE(reactor_.InThread());
    sleeps_ = put_.load() == taken_;
    return sleeps_;
  }
  int taken() const { return taken_; }  // on the reactor's thread

 private:
  Reactor& reactor_;
  std::atomic<int> put_{0};
  std::atomic<bool> sleeps_{false};
  int taken_ = 0;
};

class LookoutTest : public ReactorLoanTest {
 protected:
  LookoutTest() {
    // A loop that watches nothing does not spin.
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0);
    Run([&] {
      EXPECT_TRUE(reactor_->Watch(ends_[0], {.readable = true}, [](Reactor::Readiness) {}).ok());
    });
  }
  ~LookoutTest() override {
    Run([&] { reactor_->Unwatch(ends_[0]); });
    for (const int end : ends_) close(end);
  }

  void Run(absl::AnyInvocable<void()> fn) {
    const auto done = environment_->MakeEvent();
    reactor_->Post([&] {
      fn();
      done->Set();
    });
    EXPECT_TRUE(environment_->Await(*done, kLoanPatience).ok());
  }

  std::array<int, 2> ends_;
};

// Nobody wakes whoever has the loop; it sleeps in between, which the other side sees, as a link's
// does, and wakes it.
TEST_F(LookoutTest, WhoWaitsSeesWhatNobodyTellsOf) {
  Mailbox mailbox(*reactor_);
  constexpr int kTurns = 200;
  std::atomic<int> seen = 0;
  std::thread other([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      mailbox.Put();
      while (seen < turn) {
        if (mailbox.sleeps()) reactor_->Post([&] { reactor_->LookOut(&mailbox); });
        std::this_thread::yield();
      }
    }
  });
  EXPECT_TRUE(reactor_->RunUntil([&] { reactor_->LookOut(&mailbox); },
                                 [&] {
                                   seen = mailbox.taken();
                                   return seen == kTurns;
                                 }));
  other.join();
  Run([&] { reactor_->LookAway(&mailbox); });
}

TEST_F(LookoutTest, SleepsBeforeTheReactorDoes) {
  Mailbox mailbox(*reactor_);
  mailbox.Put();
  Run([&] { reactor_->LookOut(&mailbox); });
  while (!mailbox.sleeps()) std::this_thread::yield();
  Run([&] { EXPECT_EQ(mailbox.taken(), 1); });
  // It is looked at no more, until the next LookOut.
  mailbox.Put();
  Run([&] { EXPECT_EQ(mailbox.taken(), 1); });
}

TEST_F(LookoutTest, WhatWasTakenBackIsNotLookedAt) {
  Mailbox mailbox(*reactor_);
  Run([&] {
    reactor_->LookOut(&mailbox);
    mailbox.Put();
    reactor_->LookAway(&mailbox);
  });
  ExpectAlive();
  EXPECT_EQ(mailbox.taken(), 0);
  EXPECT_FALSE(mailbox.sleeps());
}

TEST(SimulatedReactorLoanTest, IsNotLent) {
  const auto environment = MakeSimulatedEnvironment(1);
  const auto reactor = environment->StartReactor("r");
  const auto done = environment->MakeEvent();
  EXPECT_FALSE(reactor->RunUntil([&] { done->Set(); }, [&] { return done->is_set(); }));
  EXPECT_EQ(environment->Await(*done, kLoanPatience), absl::OkStatus());
}

}  // namespace
}  // namespace braid
