// The counting by itself: actors on a ThreadCore, fired by hand, without a thread or a bus.
#include "actor/thread_core.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actor/actor.h"
#include "actor/thread_observer.h"
#include "tests/actor/hand_reactor.h"

namespace braid {
namespace {

constexpr ActorId kFar{1, 0, 9};

class ThreadCoreTest : public testing::Test, public RemoteSender {
 protected:
  absl::Status Send(const Message& message) override {
    sent_.push_back(message);
    return send_status_;
  }

  // Tasks are numbered in the order of the calls.
  Actor& Add(ActorSpec spec) {
    spec.id.task = static_cast<uint32_t>(actors_.size());
    actors_.push_back(
        std::make_unique<Actor>(spec, std::make_unique<Log>(this, spec.name), &core_,
                                ActorObserver(&observer_, static_cast<uint32_t>(actors_.size()))));
    core_.fireable().Reserve(actors_.size());
    return *actors_.back();
  }
  // 'producer' -> 'consumer' by a register with `slots`.
  void AddPair(uint32_t slots) {
    const ActorId producer{0, 0, 0}, consumer{0, 0, 1};
    Actor& from = Add({.name = "p", .outputs = {{.slots = slots, .consumers = {consumer}}}});
    Actor& to = Add({.name = "c", .inputs = {{.producer = producer, .slots = slots}}});
    from.ConnectOutput(0, 0, {.id = consumer, .actor = &to});
    to.ConnectInput(0, {.id = producer, .actor = &from});
  }
  void Run(int64_t steps) {
    core_.AddRun(steps, actors_.size());
    for (const auto& actor : actors_) actor->AddRun(steps);
    core_.ReportRuns();
  }
  // Until nothing can fire; the names in the order of the acts.
  std::string FireAll() {
    order_.clear();
    while (!core_.fireable().empty()) core_.fireable().Pop()->Fire();
    return order_;
  }

  struct Log final : Action {
    Log(ThreadCoreTest* test, std::string name) : test(*test), name(std::move(name)) {}
    void Start(const Act& act, ActDone done) override {
      test.order_ += name;
      if (act.lane != kNoLane) test.order_ += static_cast<char>('0' + act.lane);
      if (test.is_holding_) {
        test.held_.push_back(done);
      } else {
        done(test.act_status_);
      }
    }
    ThreadCoreTest& test;
    const std::string name;
  };

  HandReactor reactor_;
  std::vector<int64_t> runs_done_;
  std::vector<absl::Status> failures_;
  int times_closed_ = 0;
  ThreadCore core_{{.reactor = &reactor_,
                    .remote = this,
                    .on_run_done = [this](int64_t steps) { runs_done_.push_back(steps); },
                    .on_failure = [this](absl::Status s) { failures_.push_back(std::move(s)); },
                    .on_closed = [this] { ++times_closed_; }}};
  ThreadObserver observer_{&reactor_};
  std::vector<std::unique_ptr<Actor>> actors_;
  std::string order_;
  std::vector<Message> sent_;
  absl::Status send_status_;
  absl::Status act_status_;
  bool is_holding_ = false;
  std::vector<ActDone> held_;
};

TEST_F(ThreadCoreTest, ActorsFireInTheOrderInWhichTheyBecameAbleTo) {
  for (const char* name : {"a", "b", "c"}) Add({.name = name});
  Run(2);
  EXPECT_EQ(FireAll(), "abcabc");
}

TEST_F(ThreadCoreTest, DeferrableActorsFireWhenNoOtherCan) {
  Add({.name = "a"});
  Add({.name = "d", .is_deferrable = true});
  Add({.name = "b"});
  Run(2);
  EXPECT_EQ(FireAll(), "ababdd");
}

TEST_F(ThreadCoreTest, AChosenActorLeavesItsPlaceToTheFirst) {
  Add({.name = "a"});
  Add({.name = "b"});
  Add({.name = "c"});
  Add({.name = "d", .is_deferrable = true});
  Run(1);
  core_.fireable().Pop(2)->Fire();
  core_.fireable().Pop(2)->Fire();
  EXPECT_EQ(order_, "cd");
  EXPECT_EQ(FireAll(), "ba");
}

TEST_F(ThreadCoreTest, AnActorActsAsOftenAsItsCreditsSay) {
  Add({.name = "a", .acts_per_step = 3});
  Add({.name = "b"});
  Run(2);
  EXPECT_EQ(FireAll(), "ababaaaa");
  EXPECT_EQ(runs_done_, std::vector<int64_t>{2});
  EXPECT_EQ(FireAll(), "");
  Run(1);
  EXPECT_EQ(FireAll(), "abaa");
  EXPECT_EQ(runs_done_, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(actors_[0]->acts_done(), 9);
}

TEST_F(ThreadCoreTest, SlotsAreCredits) {
  AddPair(1);
  Run(3);
  // The producer can act again only when its one slot was acknowledged.
  core_.fireable().Pop()->Fire();
  EXPECT_EQ(core_.fireable().size(), 1u);
  EXPECT_EQ(FireAll(), "cpcpc");
}

TEST_F(ThreadCoreTest, TwoSlotsLetTheProducerGoAhead) {
  AddPair(2);
  is_holding_ = true;
  Run(3);
  order_.clear();
  const auto fire = [this] {
    core_.fireable().Pop()->Fire();
    return std::exchange(held_, {})[0];
  };
  fire()(absl::OkStatus());         // the producer's first act
  const ActDone consumer = fire();  // goes on
  fire()(absl::OkStatus());
  EXPECT_EQ(order_, "pcp");
  EXPECT_TRUE(core_.fireable().empty());  // both slots are full
  EXPECT_EQ(reactor_.wakes, 2);           // each act ended outside of a Poll
  consumer(absl::OkStatus());
  EXPECT_EQ(core_.fireable().size(), 2u);
}

TEST_F(ThreadCoreTest, ARunIsDoneWhenTheLastActorHasDoneIt) {
  AddPair(2);
  Run(1);
  Run(1);
  core_.fireable().Pop()->Fire();
  is_holding_ = true;
  core_.fireable().Pop()->Fire();  // the consumer's act of the first run
  const ActDone first = std::exchange(held_, {})[0];
  is_holding_ = false;
  EXPECT_EQ(FireAll(), "p");  // the producer is through with both
  EXPECT_TRUE(runs_done_.empty());
  first(absl::OkStatus());
  EXPECT_EQ(runs_done_, std::vector<int64_t>{1});
  EXPECT_EQ(FireAll(), "c");
  EXPECT_EQ(runs_done_, (std::vector<int64_t>{1, 2}));
}

TEST_F(ThreadCoreTest, ARunOfNobodyIsDoneAtOnce) {
  Run(5);
  EXPECT_EQ(runs_done_, std::vector<int64_t>{5});
}

TEST_F(ThreadCoreTest, MailsComeInTheOrderOfThePushes) {
  EXPECT_FALSE(core_.has_mail());
  for (int64_t piece = 0; piece < 3; ++piece) core_.Push({.src = kFar, .piece = piece});
  EXPECT_TRUE(core_.has_mail());
  Mail* mail = core_.TakeMails();
  EXPECT_FALSE(core_.has_mail());
  for (int64_t piece = 0; piece < 3; ++piece) {
    ASSERT_NE(mail, nullptr);
    Mail* const next = mail->next;
    EXPECT_EQ(core_.Unpack(mail), (Message{.src = kFar, .piece = piece}));
    mail = next;
  }
  EXPECT_EQ(mail, nullptr);
}

TEST_F(ThreadCoreTest, OnlyTheFirstMailWakes) {
  core_.Push({.src = kFar});
  core_.Push({.src = kFar});
  EXPECT_EQ(reactor_.wakes, 1);
  core_.TakeMails();
  core_.Push({.src = kFar});
  EXPECT_EQ(reactor_.wakes, 2);
}

TEST_F(ThreadCoreTest, AMailOfThePoolServesAgain) {
  core_.ReserveMails(1);
  core_.Push({.src = kFar});
  Mail* const first = core_.TakeMails();
  core_.Unpack(first);
  core_.Push({.src = kFar});
  EXPECT_EQ(core_.TakeMails(), first);
}

TEST_F(ThreadCoreTest, OnlyTheFirstFailureIsToldAndNothingFires) {
  Add({.name = "a"});
  Add({.name = "b"});
  Run(1);
  core_.Fail(absl::DataLossError("first"));
  core_.Fail(absl::DataLossError("second"));
  EXPECT_EQ(failures_, std::vector<absl::Status>{absl::DataLossError("first")});
  EXPECT_EQ(core_.cause(), absl::DataLossError("first"));
  EXPECT_TRUE(core_.is_halted());
  EXPECT_TRUE(core_.fireable().empty());
}

TEST_F(ThreadCoreTest, AFailedActTellsNobody) {
  AddPair(1);
  act_status_ = absl::DataLossError("the disk is wet");
  Run(1);
  EXPECT_EQ(FireAll(), "p");
  EXPECT_EQ(failures_, std::vector<absl::Status>{absl::DataLossError(
                           "actor 'p' (0/0/0): act 0 failed: the disk is wet")});
  EXPECT_EQ(actors_[0]->acts_done(), 0);
}

TEST_F(ThreadCoreTest, AnEndThatIsNotConnectedIsOnAnotherNode) {
  Add({.name = "a", .outputs = {{.reg = 4, .consumers = {kFar}}}});
  Run(2);
  EXPECT_EQ(FireAll(), "a");
  EXPECT_EQ(sent_, std::vector<Message>{(Message{.dst = kFar, .reg = 4})});
  actors_[0]->Receive({.src = kFar, .reg = 4, .kind = MessageKind::kAck}, 0, 0);
  send_status_ = absl::UnavailableError("link 0-1 lost");
  EXPECT_EQ(FireAll(), "a");
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].message(),
            "actor 'a' (0/0/0): cannot send kReady of register 4 slot 0 to 1/0/9: link 0-1 lost");
}

TEST_F(ThreadCoreTest, AnActThatIsRunningHoldsUpTheClose) {
  Add({.name = "a"});
  is_holding_ = true;
  Run(2);
  EXPECT_EQ(FireAll(), "a");
  core_.Close(absl::CancelledError("enough"));
  EXPECT_EQ(times_closed_, 0);
  held_[0](absl::OkStatus());
  EXPECT_EQ(times_closed_, 1);
  EXPECT_EQ(FireAll(), "");
  EXPECT_EQ(core_.cause(), absl::CancelledError("enough"));
  EXPECT_TRUE(failures_.empty());
  core_.Close(absl::CancelledError("again"));
  EXPECT_EQ(times_closed_, 1);
}

// ---- firing on `any` ----------------------------------------------------------------------------

// Two lanes, each with an input and an output, and an input of every act.
ActorSpec TwoLanes() {
  ActorSpec spec = {.name = "s", .acts_per_step = 2, .lanes = 2};
  spec.inputs.push_back({.reg = 1, .producer = kFar, .slots = 2});
  for (int32_t lane = 0; lane < 2; ++lane) {
    const auto number = static_cast<RegisterId>(lane);
    spec.inputs.push_back({.reg = 2 + number, .producer = kFar, .slots = 2, .lane = lane});
    spec.outputs.push_back({.reg = 4 + number, .slots = 1, .consumers = {kFar}, .lane = lane});
  }
  return spec;
}

TEST_F(ThreadCoreTest, AnActTakesTheLaneThatWasCompleteFirst) {
  Actor& server = Add(TwoLanes());
  const auto ready = [&](uint32_t port, uint32_t slot, int64_t piece) {
    server.Receive({.slot = slot, .kind = MessageKind::kReady, .piece = piece}, port, 0);
  };
  const auto ack = [&](uint32_t port, int64_t piece) {
    server.Receive({.slot = 0, .kind = MessageKind::kAck, .piece = piece}, port, 0);
  };
  Run(2);
  ready(2, 0, 0);
  ready(1, 0, 0);
  EXPECT_EQ(FireAll(), "") << "the input of every act is missing";
  ready(0, 0, 0);
  EXPECT_EQ(FireAll(), "s1");
  ready(0, 1, 1);
  EXPECT_EQ(FireAll(), "s0");
  ready(0, 0, 2);
  ready(2, 1, 1);
  EXPECT_EQ(FireAll(), "") << "lane 1 has no output yet";
  ready(1, 1, 1);
  ack(1, 0);
  EXPECT_EQ(FireAll(), "s1") << "lane 0 still has none";
  ready(0, 1, 3);
  ack(0, 0);
  EXPECT_EQ(FireAll(), "s0");
  EXPECT_EQ(failures_.size(), 0u);
  EXPECT_EQ(runs_done_, (std::vector<int64_t>{2}));
  // It gave back what its lane had used, and nothing of the other.
  ASSERT_GE(sent_.size(), 3u);
  EXPECT_EQ(sent_[0].reg, 1u);
  EXPECT_EQ(sent_[1].reg, 3u);
  EXPECT_EQ(sent_[2].reg, 5u);
}

TEST_F(ThreadCoreTest, LanesAreChecked) {
  ActorSpec spec = TwoLanes();
  EXPECT_EQ(CheckSpec(spec), absl::OkStatus());
  spec.outputs[0].lane = 2;
  EXPECT_EQ(CheckSpec(spec).message(),
            "actor 's' (0/0/0): output register 4 is of lane 2; it has 2 lanes");
  spec = TwoLanes();
  spec.lanes = 3;
  EXPECT_EQ(CheckSpec(spec).message(),
            "actor 's' (0/0/0): 2 of its 3 lanes have an input; each is to have one");
}

}  // namespace
}  // namespace braid
