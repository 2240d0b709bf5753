// What a thread's observer makes of the hooks, under a clock that the test sets.
#include "actor/thread_observer.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/actor/hand_reactor.h"

namespace braid {
namespace {

using Kind = ActorEvent::Kind;

// An action of which only its excuse counts.
class Excuse final : public Action {
 public:
  explicit Excuse(ThreadId cause) : cause_(cause) {}
  void Start(const Act&, ActDone done) override { done(absl::OkStatus()); }
  ThreadId LastAwaited() const override { return cause_; }

 private:
  const ThreadId cause_;
};

class ThreadObserverTest : public testing::Test {
 protected:
  void Pass(Nanoseconds time) { clock_.now += time; }
  // An act that ends inside its start, which takes `time`.
  void Act(Nanoseconds time) {
    actor_.OnActBegin(acts_);
    Pass(time);
    actor_.OnActEnd(acts_++);
  }
  void Poll(int acts, Nanoseconds time_of_each, bool has_more) {
    observer_.OnPollBegin();
    for (int i = 0; i < acts; ++i) Act(time_of_each);
    observer_.OnPollEnd(has_more);
  }
  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const ActorEvent& event : observer_.events().Read()) kinds.push_back(event.kind);
    return kinds;
  }

  HandReactor clock_;
  ThreadObserver observer_{&clock_};
  ActorObserver actor_{&observer_, 3};
  int64_t acts_ = 0;
};

TEST_F(ThreadObserverTest, EventsHaveTheTimeOfTheirPoll) {
  Pass(1024 * 1000);
  observer_.OnPollBegin();
  Pass(1024 * 1000);
  actor_.OnMessage({.slot = 2, .kind = MessageKind::kAck, .piece = 7}, 5);
  const std::vector<ActorEvent> events = observer_.events().Read();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::kAck);
  EXPECT_EQ(events[0].actor, 3u);
  EXPECT_EQ(events[0].port, 5u);
  EXPECT_EQ(events[0].slot, 2u);
  EXPECT_EQ(events[0].piece, 7);
  EXPECT_EQ(events[0].time, 1024 * 1000);
}

TEST_F(ThreadObserverTest, LongActsAreTimedEach) {
  Pass(kMillisecond);
  Poll(2, 10 * kMicrosecond, /*has_more=*/false);
  EXPECT_EQ(actor_.timed_acts(), 2);
  EXPECT_EQ(actor_.act_time(), 20 * kMicrosecond);
  EXPECT_EQ(actor_.since(), kMillisecond + 20 * kMicrosecond);
  EXPECT_EQ(observer_.acts_done(), 2);
  EXPECT_EQ(Kinds(), (std::vector<Kind>{Kind::kAct, Kind::kEnd, Kind::kAct, Kind::kEnd}));
}

TEST_F(ThreadObserverTest, ShortActsAreNotTimedUntilTheyAreLongAgain) {
  Poll(10, 0, /*has_more=*/true);
  Pass(10 * kMicrosecond);  // 1 us an act
  EXPECT_EQ(actor_.timed_acts(), 10);
  Poll(10, kMicrosecond, /*has_more=*/true);
  EXPECT_EQ(actor_.timed_acts(), 10);
  EXPECT_EQ(Kinds().size(), 30u);  // the last ten have no event of their end
  EXPECT_EQ(actor_.since(), 10 * kMicrosecond);
  Poll(10, 20 * kMicrosecond, /*has_more=*/false);
  observer_.OnIdle();
  EXPECT_EQ(actor_.timed_acts(), 10);
  Poll(1, 20 * kMicrosecond, /*has_more=*/false);
  EXPECT_EQ(actor_.timed_acts(), 11);
}

TEST_F(ThreadObserverTest, AnActThatGoesOnIsSinceItsBegin) {
  Pass(kMillisecond);
  observer_.OnPollBegin();
  actor_.OnActBegin(0);
  Pass(kMicrosecond);
  actor_.OnActGoesOn(0);
  EXPECT_EQ(actor_.since(), kMillisecond);
  EXPECT_EQ(observer_.acts_done(), 0);
  observer_.OnPollEnd(/*has_more=*/false);
  Pass(kMillisecond);
  observer_.OnPollBegin();
  actor_.OnLateActEnd(0);
  EXPECT_EQ(actor_.since(), 2 * kMillisecond + kMicrosecond);
  EXPECT_EQ(observer_.acts_done(), 1);
  EXPECT_EQ(Kinds(), (std::vector<Kind>{Kind::kAct, Kind::kGoesOn, Kind::kEnd}));
}

TEST_F(ThreadObserverTest, WhoEndsAnIdleTimeGetsTheBlame) {
  const ThreadId slow{.node = 0, .thread = 1};
  Poll(1, 0, /*has_more=*/false);
  observer_.OnIdle();
  Pass(3 * kMillisecond);
  EXPECT_EQ(observer_.load(clock_.now).idle_now, 3 * kMillisecond);
  observer_.OnPollBegin();
  observer_.OnMailWhileIdle(slow, /*has_work=*/true);
  EXPECT_FALSE(observer_.is_idle());
  Pass(kMillisecond);
  const ThreadLoadReport load = observer_.load(clock_.now);
  EXPECT_EQ(load.window, 4 * kMillisecond);
  EXPECT_EQ(load.idle, 3 * kMillisecond);
  EXPECT_EQ(load.idle_now, 0);
  EXPECT_EQ(load.waited, (std::map<ThreadId, Nanoseconds>{{slow, 3 * kMillisecond}}));
}

TEST_F(ThreadObserverTest, AMailThatGivesNothingToDoEndsNoWait) {
  const ThreadId early{.node = 0, .thread = 1}, late{.node = 0, .thread = 2};
  observer_.OnPollBegin();
  observer_.OnIdle();
  Pass(kMillisecond);
  observer_.OnPollBegin();
  observer_.OnMailWhileIdle(early, /*has_work=*/false);
  EXPECT_TRUE(observer_.is_idle());
  Pass(kMillisecond);
  observer_.OnPollBegin();
  observer_.OnMailWhileIdle(late, /*has_work=*/true);
  EXPECT_EQ(observer_.load(clock_.now).waited,
            (std::map<ThreadId, Nanoseconds>{{late, 2 * kMillisecond}}));
}

TEST_F(ThreadObserverTest, UpToARunTheHostWasWaitedForAndOthersAfterIt) {
  const ThreadId host{.node = ThreadId::kHost}, other{.node = 1, .thread = 0};
  observer_.OnPollBegin();
  observer_.OnIdle();
  Pass(kMillisecond);
  observer_.OnPollBegin();
  observer_.OnMailWhileIdle(host, /*has_work=*/false);
  EXPECT_TRUE(observer_.is_idle());
  Pass(2 * kMillisecond);
  observer_.OnPollBegin();
  observer_.OnMailWhileIdle(other, /*has_work=*/true);
  EXPECT_EQ(observer_.load(clock_.now).waited,
            (std::map<ThreadId, Nanoseconds>{{host, kMillisecond}, {other, 2 * kMillisecond}}));
}

TEST_F(ThreadObserverTest, AnActThatEndsOutsideAPollEndsAWaitForWhomItNames) {
  const ThreadId peer{.node = 1, .thread = 4};
  const Excuse action(peer);
  observer_.OnPollBegin();
  actor_.OnActEndOutsidePoll(action);  // the thread was not idle
  EXPECT_TRUE(observer_.load(clock_.now).waited.empty());
  observer_.OnIdle();
  Pass(kMillisecond);
  actor_.OnActEndOutsidePoll(action);
  actor_.OnLateActEnd(0);
  EXPECT_FALSE(observer_.is_idle());
  EXPECT_EQ(actor_.since(), kMillisecond);
  EXPECT_EQ(observer_.load(clock_.now).waited,
            (std::map<ThreadId, Nanoseconds>{{peer, kMillisecond}}));
}

}  // namespace
}  // namespace braid
