// From the nodes' reports to the root: what everything waits for, and the words for it.
#include "runtime/reports/wait_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/control.pb.h"
#include "runtime/reports/bounded_report.h"
#include "runtime/reports/load_table.h"
#include "runtime/reports/stall_report.h"

namespace braid {
namespace {

using control::ActorState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Place {
  uint32_t node = 0, thread = 0, task = 0;
};

class WaitGraphTest : public ::testing::Test {
 protected:
  explicit WaitGraphTest(int nodes = 3) {
    session_.cluster.reports.resize(nodes);
    for (int node = 0; node < nodes; ++node) session_.cluster.reports[node].set_node(node);
    session_.cluster.name_of = [](int node) {
      return absl::StrFormat("node %d (10.0.0.%d)", node, node + 1);
    };
    session_.phase = "stepping job 'train'";
    session_.is_stepping = true;
    for (auto& report : session_.cluster.reports) report.set_advanced(60 * kSecond);
  }

  ActorState& Add(const Place& place, const std::string& title,
                  ActorState::Doing doing = ActorState::WAITING) {
    ActorState& actor = *session_.cluster.reports[place.node].add_actors();
    actor.set_thread(place.thread);
    actor.set_task(place.task);
    actor.set_title(title);
    actor.set_doing(doing);
    actor.set_acts_done(12);
    actor.set_acts_credited(100);
    actor.set_since(60 * kSecond);
    return actor;
  }
  static void SetPlace(const Place& place, control::ActorPlace& out) {
    out.set_node(place.node);
    out.set_thread(place.thread);
    out.set_task(place.task);
  }
  static void Wait(ActorState& actor, const Place& peer, bool is_ack = false, int64_t piece = 12) {
    control::WaitFor& wait = *actor.add_waits();
    wait.set_is_ack(is_ack);
    wait.set_register_(5);
    wait.set_piece(piece);
    SetPlace(peer, *wait.mutable_peer());
  }
  static void Count(google::protobuf::RepeatedPtrField<control::EndCount>& counts, int64_t pieces) {
    control::EndCount& end = *counts.Add();
    end.set_register_(5);
    end.set_pieces(pieces);
  }
  // A member of the collective 8 that waits for the frames of `peer`.
  void AddMember(const Place& place, const Place& peer, int64_t acts = 12) {
    ActorState& actor = Add(place, "all_reduce 'grads'", ActorState::ACTING);
    actor.set_acts_done(acts);
    actor.set_collective(8);
    SetPlace(peer, *actor.add_awaits());
  }
  void AddStuckThread(uint32_t node, uint32_t thread, const std::string& running) {
    control::ThreadState& state = *session_.cluster.reports[node].add_threads();
    state.set_thread(thread);
    state.set_is_silent(true);
    state.set_running(running);
    state.set_running_for(static_cast<int64_t>(12.3 * kSecond));
  }
  WaitRoots Roots() const { return FindRoots(session_.cluster); }
  std::string FirstLine() const {
    const std::string text = StallReport(session_);
    return text.substr(0, text.find('\n'));
  }

  SessionState session_;
};

TEST_F(WaitGraphTest, AThreadInsideAnAct) {
  AddStuckThread(1, 0, "nap 'loss' (train.cc:42)");
  Wait(Add({0, 0, 1}, "relu 'h' (train.cc:3)"), {0, 0, 2});
  AddMember({0, 0, 2}, {1, 0});
  AddMember({2, 0, 2}, {0, 0});
  EXPECT_EQ(FirstLine(),
            "everything waits for: node 1 (10.0.0.2), device 0: nap 'loss' (train.cc:42) has been "
            "inside its kernel for 12.3 s");
  EXPECT_THAT(
      Roots().chain,
      ElementsAre("node 0 (10.0.0.1), device 0: relu 'h' (train.cc:3) waits for register 5 piece "
                  "12 to be filled by",
                  "node 0 (10.0.0.1), device 0: all_reduce 'grads' is in act 12 and waits for",
                  "node 1 (10.0.0.2), device 0: nap 'loss' (train.cc:42) has been inside its "
                  "kernel for 12.3 s"));
  EXPECT_EQ(Roots().waiting_for_root, 3u);
}

TEST_F(WaitGraphTest, ANodeThatDoesNotAnswer) {
  session_.cluster.reports.pop_back();
  session_.cluster.silent[2] = static_cast<Nanoseconds>(6.1 * kSecond);
  Wait(Add({0, 0, 1}, "relu 'h'"), {1, 0, 1});
  Wait(Add({1, 0, 1}, "transfer 'x' to node 0"), {2, 3, 9}, /*is_ack=*/true);
  EXPECT_EQ(FirstLine(), "everything waits for: node 2 (10.0.0.3) does not answer since 6.1 s");
}

TEST_F(WaitGraphTest, AnotherRootIsToldToo) {
  AddStuckThread(1, 1, "read 'digits' (train.cc:9)");
  AddStuckThread(2, 0, "relu 'h'");
  Wait(Add({1, 0, 1}, "cast"), {1, 1, 1});
  Wait(Add({1, 0, 2}, "sum"), {1, 0, 1});
  Wait(Add({2, 3, 1}, "sum"), {2, 0, 1});
  EXPECT_THAT(FirstLine(), StartsWith("2 of 3 actors that wait, wait for: node 1 (10.0.0.2), "
                                      "device 0 (input): read 'digits' (train.cc:9) has been"));
  EXPECT_THAT(StallReport(session_),
              HasSubstr("\n1 also wait for: node 2 (10.0.0.3), device 0: relu 'h' has been"));
}

TEST_F(WaitGraphTest, AMessageThatDoesNotArrive) {
  ActorState& producer = Add({0, 0, 1}, "transfer 'x' to node 1");
  ActorState& consumer = Add({1, 0, 2}, "relu 'h'");
  Wait(producer, {1, 0, 2}, /*is_ack=*/true, 10);
  Count(*producer.mutable_sent(), 13);
  Wait(consumer, {0, 0, 1});
  Count(*consumer.mutable_acknowledged(), 10);
  control::NodeReport::LinkState& link = *session_.cluster.reports[0].add_links();
  link.set_peer(1);
  link.set_text("node 0 <-> node 1: tcp eth0");
  EXPECT_EQ(FirstLine(),
            "everything waits for: the filling of register 5 piece 12, which left node 0 "
            "(10.0.0.1) and has not reached node 1 (10.0.0.2) (link node 0 <-> node 1: tcp eth0)");
}

TEST_F(WaitGraphTest, FramesOfACollectiveThatDoNotArrive) {
  AddMember({0, 0, 2}, {1, 0});
  AddMember({1, 0, 2}, {2, 0});
  AddMember({2, 0, 2}, {0, 0});
  Wait(Add({0, 0, 1}, "adam 'w'"), {0, 0, 2});
  EXPECT_EQ(Roots().root,
            "all_reduce 'grads': every member is in it; frames between node 0 (10.0.0.1), node 1 "
            "(10.0.0.2), node 2 (10.0.0.3) have not arrived");
  EXPECT_EQ(Roots().chain.size(), 2u);
}

TEST_F(WaitGraphTest, AMemberThatIsAheadHasSent) {
  AddMember({0, 0, 2}, {1, 0});
  AddMember({1, 0, 2}, {0, 0}, /*acts=*/13);
  EXPECT_THAT(Roots().root, StartsWith("a frame of all_reduce 'grads', which left node 1"));
}

TEST_F(WaitGraphTest, ACircleIsPrinted) {
  Wait(Add({0, 0, 1}, "a"), {0, 0, 2});
  Wait(Add({0, 0, 2}, "b"), {0, 0, 1}, /*is_ack=*/true);
  Wait(Add({0, 0, 3}, "c"), {0, 0, 1});
  EXPECT_THAT(Roots().root, StartsWith("a circle of 2 that wait for each other"));
  EXPECT_THAT(Roots().root, HasSubstr("device 0: a"));
  EXPECT_THAT(Roots().root, HasSubstr("device 0: b"));
  EXPECT_EQ(Roots().waiting_for_root, 3u);
}

// Threads are asked one after another: what one has sent the other need not have got.
TEST_F(WaitGraphTest, WhileAJobAdvancesNothingIsCalledACircle) {
  ActorState& reader = Add({0, 1, 1}, "read 'digits'");
  Wait(reader, {0, 0, 2}, /*is_ack=*/true, 11);
  Count(*reader.mutable_sent(), 13);
  Wait(Add({0, 0, 2}, "relu 'h'"), {0, 1, 1});
  EXPECT_EQ(Roots().root,
            "the filling of register 5 piece 12, which is on its way from thread to thread on node "
            "0 (10.0.0.1)");
  reader.clear_sent();
  EXPECT_THAT(Roots().root, StartsWith("a circle of 2"));
  session_.cluster.reports[0].set_advanced(kMillisecond);
  EXPECT_THAT(Roots().root, StartsWith("work that goes round between 2 actors, such as node 0"));
}

TEST_F(WaitGraphTest, AnActorWithoutCredit) {
  Wait(Add({0, 0, 1}, "a"), {1, 0, 2});
  Add({1, 0, 2}, "b", ActorState::DONE);
  EXPECT_THAT(Roots().root, HasSubstr("b, which has done all 12 acts that it was told to do"));
}

TEST_F(WaitGraphTest, NothingRuns) {
  session_.is_stepping = false;
  session_.phase = "waiting for the program";
  session_.phase_for = static_cast<Nanoseconds>(12.3 * kSecond);
  Add({0, 0, 1}, "a", ActorState::DONE);
  EXPECT_EQ(FirstLine(), "no job runs: the session is waiting for the program, for 12.3 s");
}

TEST_F(WaitGraphTest, AJobThatAdvances) {
  session_.cluster.reports[1].set_advanced(kMillisecond);
  Wait(Add({0, 0, 1}, "a"), {1, 0, 2});
  Add({1, 0, 2}, "b", ActorState::NEXT);
  EXPECT_EQ(FirstLine(),
            "stepping job 'train', which advances; just now everything waits for: node 1 "
            "(10.0.0.2), device 0: b, which is about to act");
}

TEST_F(WaitGraphTest, OneNodesPart) {
  session_.cluster.is_whole = false;
  Wait(Add({0, 0, 1}, "a"), {1, 3, 2});
  EXPECT_EQ(FirstLine(), "everything waits for: node 1 (10.0.0.2), device 1, which was not asked");
}

TEST_F(WaitGraphTest, ALongChainIsCut) {
  for (uint32_t task = 1; task < 100; ++task) {
    Wait(Add({0, 0, task}, absl::StrFormat("a%d", task)), {0, 0, task + 1});
  }
  Add({0, 0, 100}, "end", ActorState::ACTING);
  const std::vector<std::string> chain = Roots().chain;
  EXPECT_EQ(chain.size(), 16u);
  EXPECT_THAT(chain[0], HasSubstr("a1 waits"));
  EXPECT_THAT(chain[14], HasSubstr("a99 waits"));
  EXPECT_THAT(chain[15], HasSubstr("end has been under way for 60.0 s"));
  EXPECT_THAT(chain, ::testing::Contains("... 85 more ..."));
}

class ManyNodesTest : public WaitGraphTest {
 protected:
  ManyNodesTest() : WaitGraphTest(64) {}
};

TEST_F(ManyNodesTest, TheReportIsBounded) {
  AddStuckThread(63, 0, "nap 'x' (train.cc:1)");
  for (uint32_t node = 0; node < 64; ++node) {
    for (uint32_t task = 0; task < 2000; ++task) {
      Wait(Add({node, 3, task}, "relu 'h' (train.cc:3)"),
           task > 0 ? Place{node, 3, task - 1} : Place{63, 0, 1});
    }
    session_.cluster.reports[node].set_actors_left_out(2000);
  }
  const std::string text = StallReport(session_);
  EXPECT_THAT(text, StartsWith("everything waits for: node 63 (10.0.0.64), device 0: nap 'x'"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 90);
  EXPECT_LT(text.size(), 20'000u);
  EXPECT_THAT(text, HasSubstr(absl::StrFormat("  and %d more\n", 1 + 64 * 4000 - 40)));
}

// ---- who is waited for --------------------------------------------------------------------------

class LoadTableTest : public WaitGraphTest {
 protected:
  struct Waits {
    Place peer;
    double share;
  };
  void AddThread(const Place& place, const std::vector<Waits>& waits, double for_program = 0) {
    control::ThreadState& state = *session_.cluster.reports[place.node].add_threads();
    const auto window = static_cast<double>(10 * kSecond);
    double idle = for_program;
    state.set_thread(place.thread);
    for (const Waits& wait : waits) {
      control::ThreadState::Wait& out = *state.add_waits();
      SetPlace(wait.peer, *out.mutable_peer());
      out.set_time(static_cast<int64_t>(wait.share * (1 - for_program) * window));
      idle += wait.share * (1 - for_program);
    }
    state.set_window(10 * kSecond);
    state.set_for_program(static_cast<int64_t>(for_program * window));
    state.set_idle(static_cast<int64_t>(idle * window));
  }
};

// Node 0 waits for node 2, which itself waits for node 1: that one is slow.
TEST_F(LoadTableTest, TheBlameGoesToTheLastInTheRow) {
  AddThread({0, 0}, {{{2, 0}, 0.9}}, /*for_program=*/0.5);
  AddThread({2, 0}, {{{1, 0}, 0.9}});
  AddThread({1, 0}, {});
  session_.cluster.reports[1].mutable_threads(0)->set_slowest("nap 'x' (train.cc:1)");
  session_.cluster.reports[1].mutable_threads(0)->set_slowest_time(50 * kMillisecond);
  const std::vector<NodeLoad> loads = MeasureLoads(session_.cluster, 10);
  ASSERT_EQ(loads.size(), 3u);
  EXPECT_EQ(loads[0].node, 1);
  EXPECT_NEAR(loads[0].waited_for, (0.81 + 0.9) / 2, 1e-9);
  EXPECT_NEAR(loads[0].busy, 1, 1e-9);
  EXPECT_NEAR(loads[0].waiting, 0, 1e-9);
  EXPECT_EQ(loads[1].node, 2);
  EXPECT_NEAR(loads[1].waited_for, 0.09 / 2, 1e-9);
  EXPECT_NEAR(loads[1].waiting, 0.9, 1e-9);
  EXPECT_NEAR(loads[2].waiting, 0.9, 1e-9);
  EXPECT_THAT(StallReport(session_),
              HasSubstr("\n  node 1 (10.0.0.2)        86 %    0 %  100 %  nap 'x' (train.cc:1): "
                        "50.000 ms\n"));
}

// Threads of one node that wait for each other do not hide what comes from outside.
TEST_F(LoadTableTest, WaitsInsideANodeGoOn) {
  AddThread({0, 0}, {{{0, 2}, 0.8}});
  AddThread({0, 2}, {{{0, 0}, 0.2}, {{1, 2}, 0.8}});
  AddThread({1, 2}, {{{1, 0}, 1.0}});
  AddThread({1, 0}, {});
  const std::vector<NodeLoad> loads = MeasureLoads(session_.cluster, 10);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].node, 1);
  // x = 0.8 y, y = 0.2 x + 0.8
  EXPECT_NEAR(loads[0].waited_for, 0.8 * 0.8 / (1 - 0.16), 1e-6);
  EXPECT_NEAR(loads[1].waited_for, 0, 1e-9);
}

TEST(BoundNumbersTest, CutsWhatNoReportSays) {
  control::NodeReport report;
  report.set_advanced(INT64_MIN);
  control::ThreadState& thread = *report.add_threads();
  thread.set_window(INT64_MAX);
  thread.set_for_program(-1);
  thread.add_waits()->set_time(INT64_MAX);
  BoundNumbers(report);
  EXPECT_EQ(report.advanced(), -kForever);
  EXPECT_EQ(report.threads(0).window(), kForever);
  EXPECT_EQ(report.threads(0).for_program(), -1);
  EXPECT_EQ(report.threads(0).waits(0).time(), kForever);
  control::ControlMessage message;
  message.mutable_roll_call()->set_waited(INT64_MAX);
  message.mutable_roll_call()->add_raised(INT64_MIN);
  BoundNumbers(message);
  EXPECT_EQ(message.roll_call().waited(), kForever);
  EXPECT_EQ(message.roll_call().raised(0), -kForever);
}

}  // namespace
}  // namespace braid
