// Simulated processes: one clock, crashes, pauses, descriptors, and the same run for the same seed.
#include "runtime/base/simulation.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace braid {
namespace {

constexpr Nanoseconds kSimulationPatience = 60 * kSecond;

// Beats every millisecond until it is destroyed.
class Beater {
 public:
  explicit Beater(Environment& environment) : reactor_(environment.StartReactor("beater")) {
    reactor_->Post([this] { Beat(); });
  }
  int beats() const { return beats_; }
  Reactor& reactor() { return *reactor_; }

 private:
  void Beat() {
    ++beats_;
    reactor_->RunAfter(kMillisecond, [this] { Beat(); });
  }
  int beats_ = 0;
  std::unique_ptr<Reactor> reactor_;
};

class SimulationTest : public ::testing::Test {
 protected:
  // Lets time go by.
  void Pass(Nanoseconds time) {
    const std::unique_ptr<Event> never = observer_.MakeEvent();
    EXPECT_FALSE(observer_.Await(*never, time).ok());
  }

  const std::unique_ptr<Simulation> world_ = MakeSimulation(7);
  Environment& observer_ = world_->AddProcess("observer");
  Environment& first_ = world_->AddProcess("first");
  Environment& second_ = world_->AddProcess("second");
};

TEST_F(SimulationTest, ProcessesShareAClock) {
  Beater a(first_), b(second_);
  Pass(100 * kMillisecond);
  EXPECT_GE(a.beats(), 90);
  EXPECT_GE(b.beats(), 90);
  EXPECT_EQ(first_.Now(), second_.Now());
  EXPECT_EQ(world_->UseOf(1).reactors, 1);
  EXPECT_EQ(world_->UseOf(1).timers, 1);
}

TEST_F(SimulationTest, APausedProcessMissesNothingButTime) {
  Beater a(first_), b(second_);
  Pass(10 * kMillisecond);
  world_->Pause(1);
  const int before = a.beats();
  Pass(100 * kMillisecond);
  EXPECT_EQ(a.beats(), before);
  EXPECT_GE(b.beats(), 100);
  world_->Resume(1);
  Pass(10 * kMillisecond);
  EXPECT_GT(a.beats(), before);
  EXPECT_LT(a.beats(), before + 20) << "a timer that was due runs once";
}

TEST_F(SimulationTest, PostsThatAreHeldWaitInTheirOrder) {
  world_->HoldPosts(1, "slow");
  Beater beater(first_);
  const std::unique_ptr<Reactor> held = first_.StartReactor("slow 1"),
                                 others = second_.StartReactor("slow 1");
  std::string ran;
  for (const char* const name : {"a", "b"}) held->Post([&ran, name] { ran += name; });
  others->Post([&ran] { ran += "c"; });
  Pass(100 * kMillisecond);
  EXPECT_EQ(ran, "c");
  EXPECT_GE(beater.beats(), 90) << "another reactor of its process";
  world_->ReleasePosts(1);
  Pass(kMillisecond);
  EXPECT_EQ(ran, "cab");
  world_->HoldPosts(1, "slow");
  held->Post([&ran] { ran += "d"; });
  world_->Kill(1);
  const std::unique_ptr<Event> done = first_.MakeEvent();
  held->Post([&] { done->Set(); });
  EXPECT_TRUE(first_.Await(*done, kSecond).ok()) << "what is taken down waits for nothing";
  EXPECT_EQ(ran, "cabd");
}

TEST_F(SimulationTest, ThePausedHostComesBackAfterIt) {
  Beater a(first_);
  const std::unique_ptr<Event> event = first_.MakeEvent();
  world_->RunAfter(kMillisecond, [&] {
    world_->Pause(1);
    event->Set();
  });
  world_->RunAfter(kSecond, [&] { world_->Resume(1); });
  EXPECT_TRUE(first_.Await(*event, 10 * kMillisecond).ok());
  EXPECT_GE(world_->Now(), kSecond);
}

TEST_F(SimulationTest, ACrashEndsTheHostsWaitAtOnce) {
  Beater a(first_), b(second_);
  const std::unique_ptr<Event> never = first_.MakeEvent();
  int killed = -1;
  world_->OnKilled([&](int process) { killed = process; });
  world_->RunAfter(5 * kMillisecond, [&] { world_->Kill(1); });
  EXPECT_EQ(first_.Await(*never, kSimulationPatience).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(killed, 1);
  EXPECT_FALSE(world_->is_alive(1));
  EXPECT_LT(world_->Now(), 6 * kMillisecond);
  const int before = a.beats();
  Pass(100 * kMillisecond);
  EXPECT_EQ(a.beats(), before) << "the others do not see it run";
  EXPECT_GE(b.beats(), 100);
}

// Its host may wait for what its destructors need; nobody else moves meanwhile.
TEST_F(SimulationTest, AKilledProcessIsTakenDownAlone) {
  auto a = std::make_unique<Beater>(first_);
  Beater b(second_);
  Pass(5 * kMillisecond);
  world_->Kill(1);
  const Nanoseconds now = world_->Now();
  const uint64_t digest = world_->digest();
  const int beats = b.beats();
  const std::unique_ptr<Event> done = first_.MakeEvent();
  a->reactor().Post([&] { a->reactor().RunAfter(kSecond, [&] { done->Set(); }); });
  EXPECT_TRUE(first_.Await(*done, 2 * kSecond).ok());
  EXPECT_GE(first_.Now(), now + kSecond);
  EXPECT_EQ(world_->Now(), now);
  EXPECT_EQ(world_->digest(), digest);
  EXPECT_EQ(b.beats(), beats);
  const std::unique_ptr<Event> never = first_.MakeEvent();
  EXPECT_FALSE(first_.Await(*never, 1000 * kSimulationPatience).ok());
  a.reset();
  EXPECT_EQ(world_->UseOf(1).reactors, 0);
  EXPECT_EQ(world_->UseOf(1).timers, 0);
}

TEST_F(SimulationTest, DescriptorsAreWatchedByLevel) {
  const auto reactor = first_.StartReactor("io");
  const int descriptor = world_->OpenDescriptor(1);
  int calls = 0;
  Reactor::Readiness last;
  const auto watch = [&](Reactor::Readiness interest) {
    const std::unique_ptr<Event> done = first_.MakeEvent();
    reactor->Post([&] {
      EXPECT_TRUE(reactor
                      ->Watch(descriptor, interest,
                              [&](Reactor::Readiness ready) {
                                ++calls;
                                last = ready;
                                if (calls % 10 == 0) reactor->Unwatch(descriptor);
                              })
                      .ok());
      done->Set();
    });
    EXPECT_TRUE(first_.Await(*done, kSimulationPatience).ok());
  };
  watch({.readable = true});
  Pass(kMillisecond);
  EXPECT_EQ(calls, 0);
  world_->SetDescriptor(descriptor, {.writable = true});
  Pass(kMillisecond);
  EXPECT_EQ(calls, 0) << "nobody asked for that";
  world_->SetDescriptor(descriptor, {.readable = true, .writable = true});
  Pass(kMillisecond);
  EXPECT_EQ(calls, 10) << "again and again, until it is unwatched";
  EXPECT_TRUE(last.readable && !last.writable);
  world_->SetDescriptor(descriptor, {});
  watch({});
  world_->SetDescriptor(descriptor, {.is_broken = true});
  Pass(kMillisecond);
  EXPECT_EQ(calls, 20);
  EXPECT_TRUE(last.readable && last.writable);
  EXPECT_EQ(world_->UseOf(1).descriptors, 1);
  world_->CloseDescriptor(descriptor);
  EXPECT_EQ(world_->UseOf(1).descriptors, 0);
}

TEST(SimulationSeedTest, EqualSeedsGiveEqualRuns) {
  const auto digest = [](uint64_t seed) {
    const std::unique_ptr<Simulation> world = MakeSimulation(seed);
    Environment& observer = world->AddProcess("observer");
    Beater a(world->AddProcess("a")), b(world->AddProcess("b"));
    world->RunAfter(3 * kMillisecond, [&] { world->Pause(1); });
    world->RunAfter(6 * kMillisecond, [&] { world->Resume(1); });
    const std::unique_ptr<Event> never = observer.MakeEvent();
    EXPECT_FALSE(observer.Await(*never, 20 * kMillisecond).ok());
    EXPECT_GT(world->num_events(), 20u);
    return world->digest();
  };
  EXPECT_EQ(digest(1), digest(1));
  EXPECT_NE(digest(1), digest(2));
}

}  // namespace
}  // namespace braid
