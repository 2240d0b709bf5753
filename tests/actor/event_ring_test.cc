// The last events of an actor thread, whom it waits for, and the act inside which it is stuck.
#include "actor/event_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "tests/actor/actor_cluster.h"

namespace braid {
namespace {

using Kind = ActorEvent::Kind;

TEST(EventRingTest, KeepsWhatItIsTold) {
  EventRing ring;
  ActorEvent last;
  EXPECT_FALSE(ring.Last(last));
  EXPECT_TRUE(ring.Read().empty());
  ring.Record({.kind = Kind::kAck,
               .actor = 1'000'000,
               .port = 65535,
               .slot = 4095,
               .piece = 60'000'000'000,
               .time = 1024 * (int64_t{1} << 39)});
  ASSERT_TRUE(ring.Last(last));
  EXPECT_EQ(last.kind, Kind::kAck);
  EXPECT_EQ(last.actor, 1'000'000u);
  EXPECT_EQ(last.port, 65535u);
  EXPECT_EQ(last.slot, 4095u);
  EXPECT_EQ(last.piece, 60'000'000'000);
  EXPECT_EQ(last.time, 1024 * (int64_t{1} << 39));
}

TEST(EventRingTest, KeepsTheLastOnes) {
  EventRing ring;
  const int64_t number = 3 * EventRing::kSize + 5;
  for (int64_t i = 0; i < number; ++i) ring.Record({.kind = Kind::kAct, .piece = i});
  const std::vector<ActorEvent> events = ring.Read();
  // The place of the next event is taken for being written.
  ASSERT_EQ(events.size(), EventRing::kSize - 1);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].piece, number - static_cast<int64_t>(events.size() - i));
  }
}

// Whoever reads while the thread writes gets events in order, without one that is half of another.
TEST(EventRingTest, IsReadWhileWritten) {
  EventRing ring;
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (int64_t i = 0; !is_over; ++i) {
      ring.Record({.kind = Kind::kAct, .actor = static_cast<uint32_t>(i % 1000), .piece = i});
    }
  });
  for (int round = 0; round < 200; ++round) {
    const std::vector<ActorEvent> events = ring.Read();
    for (size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(events[i].actor, static_cast<uint32_t>(events[i].piece % 1000));
      ASSERT_EQ(events[i].piece, events[0].piece + static_cast<int64_t>(i));
    }
  }
  is_over = true;
  writer.join();
}

TEST(EventsTest, TellWhatActsSentAndReceived) {
  auto environment = MakeSimulatedEnvironment(1);
  ActorCluster cluster(environment.get(), 1);
  const int a = cluster.AddActor("reader");
  const int b = cluster.AddActor("far", {.thread = 1, .completion = Completion::kFromElsewhere});
  const RegisterId reg = cluster.AddRegister(a, {b}, {.slots = 2});
  ASSERT_EQ(reg, 0u);
  ASSERT_EQ(cluster.Start(), absl::OkStatus());
  ASSERT_EQ(cluster.RunAndAwait(2), absl::OkStatus());
  cluster.Close();
  const auto contains = [&](uint16_t thread, const std::string& text) {
    int found = 0;
    for (const std::string& line : cluster.ThreadOf(0, thread).DescribeEvents(kSecond)) {
      found += line.find(text) != std::string::npos ? 1 : 0;
    }
    return found;
  };
  EXPECT_EQ(contains(0, "reader (0/0/0) act 1 "), 1 + contains(0, "reader (0/0/0) act 1 ended"));
  EXPECT_EQ(contains(0, "kReady register 0 slot 1 piece 1 to 0/1/1"), 1);
  EXPECT_EQ(contains(0, "reader (0/0/0) got kAck register 0 slot 0 piece 0"), 1);
  EXPECT_EQ(contains(1, "far (0/1/1) got kReady register 0 slot 1 piece 1 from 0/0/0"), 1);
  EXPECT_EQ(contains(1, "far (0/1/1) act 0 goes on"), 1);
  EXPECT_EQ(contains(1, "far (0/1/1) act 1 ended; kAck register 0 slot 1 piece 1 to 0/0/0"), 1);
}

// An action that does not come back before it is let go.
class Stuck final : public Action {
 public:
  void Start(const Act&, ActDone done) override {
    is_inside = true;
    while (is_stuck) std::this_thread::yield();
    done(absl::OkStatus());
  }
  std::atomic<bool> is_inside{false};
  std::atomic<bool> is_stuck{true};
};

TEST(EventsTest, AStuckThreadTellsWhereItIs) {
  auto environment = MakeRealEnvironment();
  MessageBus bus(0, nullptr);
  auto ran = environment->MakeEvent(), closed = environment->MakeEvent();
  auto reactor = environment->StartReactor("stuck");
  ActorThread thread(
      {.on_run_done = [&](int64_t) { ran->Set(); }, .on_closed = [&] { closed->Set(); }},
      reactor.get(), &bus);
  auto made = std::make_unique<Stuck>();
  Stuck& stuck = *made;
  ASSERT_EQ(thread.AddActor({.id = {0, 0, 7}, .name = "loss"}, std::move(made)), absl::OkStatus());
  ASSERT_EQ(bus.Start(), absl::OkStatus());
  EXPECT_EQ(thread.running().spec, nullptr);
  thread.Run(1);
  while (!stuck.is_inside) std::this_thread::yield();
  const ActorThread::RunningAct running = thread.running();
  ASSERT_NE(running.spec, nullptr);
  EXPECT_EQ(running.spec->name, "loss");
  EXPECT_EQ(running.index, 0);
  EXPECT_LE(running.since, environment->Now());
  const auto lines = thread.DescribeEvents(environment->Now());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("loss (0/0/7) act 0 began"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("ended"), std::string::npos) << lines[0];
  stuck.is_stuck = false;
  EXPECT_EQ(environment->Await(*ran, 20 * kSecond), absl::OkStatus());
  thread.Abort(absl::CancelledError("end"));
  EXPECT_EQ(environment->Await(*closed, 20 * kSecond), absl::OkStatus());
  EXPECT_EQ(thread.running().spec, nullptr);
  reactor.reset();
}

// Asks the reactor something in its first act; every act is long.
class Asking final : public Action {
 public:
  Asking(Reactor* reactor, std::function<void()> question)
      : reactor_(*reactor), question_(std::move(question)) {}

  void Start(const Act& act, ActDone done) override {
    if (act.index == 0) reactor_.Post(question_);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done(absl::OkStatus());
  }

 private:
  Reactor& reactor_;
  const std::function<void()> question_;
};

// As long as there was something to do, up to 64 acts came first.
TEST(EventsTest, AQuestionIsAnsweredBetweenLongActs) {
  auto environment = MakeRealEnvironment();
  MessageBus bus(0, nullptr);
  auto ran = environment->MakeEvent(), closed = environment->MakeEvent();
  auto reactor = environment->StartReactor("busy");
  ActorThread thread(
      {.on_run_done = [&](int64_t) { ran->Set(); }, .on_closed = [&] { closed->Set(); }},
      reactor.get(), &bus);
  int64_t acts_before = -1;
  const auto answer = [&] { acts_before = thread.acts_done(); };
  ASSERT_EQ(thread.AddActor({.id = {0, 0, 0}, .name = "busy"},
                            std::make_unique<Asking>(reactor.get(), answer)),
            absl::OkStatus());
  ASSERT_EQ(bus.Start(), absl::OkStatus());
  thread.Run(20);
  EXPECT_EQ(environment->Await(*ran, 20 * kSecond), absl::OkStatus());
  thread.Abort(absl::CancelledError("end"));
  EXPECT_EQ(environment->Await(*closed, 20 * kSecond), absl::OkStatus());
  EXPECT_GE(acts_before, 1);
  EXPECT_LE(acts_before, 3) << "of 20 ms each, where 50 ms are long";
  reactor.reset();
}

// A pipeline whose second thread is slow: the first waits for it, and says so.
TEST(ThreadLoadTest, WhoIsWaitedForGetsTheBlame) {
  auto environment = MakeRealEnvironment();
  MessageBus bus(0, nullptr);
  std::vector<std::unique_ptr<Event>> ran, closed;
  std::vector<std::unique_ptr<Reactor>> reactors;
  std::vector<std::unique_ptr<ActorThread>> threads;
  for (uint16_t number = 0; number < 2; ++number) {
    ran.push_back(environment->MakeEvent());
    closed.push_back(environment->MakeEvent());
    reactors.push_back(environment->StartReactor("load"));
    ActorThreadOptions options;
    options.thread = number;
    options.on_run_done = [event = ran.back().get()](int64_t) { event->Set(); };
    options.on_closed = [event = closed.back().get()] { event->Set(); };
    threads.push_back(
        std::make_unique<ActorThread>(std::move(options), reactors.back().get(), &bus));
  }
  class Spin final : public Action {
   public:
    Spin(Environment* environment, Nanoseconds time) : environment_(*environment), time_(time) {}
    void Start(const Act&, ActDone done) override {
      const Nanoseconds end = environment_.Now() + time_;
      while (environment_.Now() < end) std::this_thread::yield();
      done(absl::OkStatus());
    }

   private:
    Environment& environment_;
    const Nanoseconds time_;
  };
  const ActorId quick{0, 0, 0}, slow{0, 1, 1};
  ASSERT_EQ(threads[0]->AddActor({.id = quick, .outputs = {{.reg = 0, .consumers = {slow}}}},
                                 std::make_unique<Spin>(environment.get(), 0)),
            absl::OkStatus());
  ASSERT_EQ(threads[1]->AddActor({.id = slow, .inputs = {{.reg = 0, .producer = quick}}},
                                 std::make_unique<Spin>(environment.get(), 2 * kMillisecond)),
            absl::OkStatus());
  ASSERT_EQ(bus.Start(), absl::OkStatus());
  for (const auto& thread : threads) thread->Run(50);
  for (const auto& event : ran)
    ASSERT_EQ(environment->Await(*event, 20 * kSecond), absl::OkStatus());
  for (const auto& thread : threads) thread->Abort(absl::CancelledError("end"));
  for (const auto& event : closed) {
    ASSERT_EQ(environment->Await(*event, 20 * kSecond), absl::OkStatus());
  }
  reactors.clear();
  const Nanoseconds now = environment->Now();
  const ThreadLoadReport first = threads[0]->load(now), second = threads[1]->load(now);
  // 50 acts of 2 ms, of which it waits for all but the last one or two.
  const Nanoseconds waited = first.waited.contains({0, 1}) ? first.waited.at({0, 1}) : 0;
  EXPECT_GT(waited, 40 * 2 * kMillisecond);
  Nanoseconds other = 0;
  for (const auto& [cause, time] : second.waited) {
    if (cause.node != ThreadId::kHost) other += time;
  }
  EXPECT_LT(other, waited / 2);
  const ActorReport report = threads[1]->Describe().at(0);
  ASSERT_GT(report.timed_acts, 40);
  EXPECT_GE(report.act_time / report.timed_acts, 2 * kMillisecond);
}

}  // namespace
}  // namespace braid
