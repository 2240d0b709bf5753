// What goes wrong is named and ends nothing but the run: bad messages, bad specs, failing actions,
// stalls, aborts.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actor/actor_thread.h"
#include "actor/message_bus.h"
#include "gtest/gtest.h"
#include "tests/actor/actor_cluster.h"

namespace braid {
namespace {

// One node whose actor 'relay' (0/0/7) reads register 3 from 1/0/1 and writes register 4 for 1/0/2,
// on another node that the test plays.
class LonelyNodeTest : public testing::Test, public RemoteSender, public Action {
 protected:
  void Start(std::unique_ptr<Environment> environment) {
    environment_ = std::move(environment);
    reactor_ = environment_->StartReactor("actors");
    closed_ = environment_->MakeEvent();
    failed_ = environment_->MakeEvent();
    ran_ = environment_->MakeEvent();
    bus_ = std::make_unique<MessageBus>(0, this);
    thread_ = std::make_unique<ActorThread>(
        ActorThreadOptions{
            .thread = 0,
            .order = environment_->is_simulated() ? std::make_unique<SeededChoice>(0) : nullptr,
            .on_run_done = [this](int64_t) { ran_->Set(); },
            .on_failure =
                [this](absl::Status status) {
                  failures_.push_back(std::move(status));
                  failed_->Set();
                },
            .on_closed = [this] { closed_->Set(); }},
        reactor_.get(), bus_.get());
    ASSERT_EQ(thread_->AddActor({.id = kRelay,
                                 .name = "relay",
                                 .inputs = {{.reg = 3, .producer = kSource, .slots = 2}},
                                 .outputs = {{.reg = 4, .slots = 1, .consumers = {kSink}}}},
                                std::make_unique<Forward>(this)),
              absl::OkStatus());
    ASSERT_EQ(bus_->Start(), absl::OkStatus());
  }

  void TearDown() override {
    if (thread_ == nullptr) return;
    for (const ActDone& done : held_) done(absl::OkStatus());
    thread_->Abort(absl::CancelledError("test ends"));
    EXPECT_EQ(environment_->Await(*closed_, 20 * kSecond), absl::OkStatus());
    reactor_.reset();
    thread_.reset();
  }

  absl::Status Send(const Message& message) override {
    sent_.push_back(message);
    return send_status_;
  }
  void Start(const Act& act, ActDone done) override {
    EXPECT_EQ(act.output_slots[0], 0u);
    if (is_holding_) {
      held_.push_back(done);
    } else {
      done(absl::OkStatus());
    }
  }

  // Runs 10 steps with these messages from outside; the failure that follows.
  std::string FailureOf(const std::vector<Message>& messages) {
    thread_->Run(10);
    for (const Message& message : messages) {
      EXPECT_EQ(bus_->Deliver(message), absl::OkStatus());
    }
    EXPECT_EQ(environment_->Await(*failed_, 20 * kSecond), absl::OkStatus());
    EXPECT_EQ(failures_.size(), 1u);
    return failures_.empty() ? "" : std::string(failures_[0].message());
  }

  static Message Ready(uint32_t slot, int64_t piece) {
    return {.src = kSource, .dst = kRelay, .reg = 3, .slot = slot, .piece = piece};
  }
  static Message Ack(uint32_t slot, int64_t piece) {
    return {.src = kSink,
            .dst = kRelay,
            .reg = 4,
            .slot = slot,
            .kind = MessageKind::kAck,
            .piece = piece};
  }

  static constexpr ActorId kRelay{0, 0, 7};
  static constexpr ActorId kSource{1, 0, 1};
  static constexpr ActorId kSink{1, 0, 2};

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<MessageBus> bus_;
  std::unique_ptr<Event> closed_, failed_, ran_;
  std::unique_ptr<ActorThread> thread_;
  std::unique_ptr<Reactor> reactor_;
  std::vector<absl::Status> failures_;
  std::vector<Message> sent_;
  absl::Status send_status_;
  bool is_holding_ = false;
  std::vector<ActDone> held_;

 private:
  struct Forward : Action {
    explicit Forward(Action* to) : to(*to) {}
    void Start(const Act& act, ActDone done) override { to.Start(act, done); }
    Action& to;
  };
};

TEST_F(LonelyNodeTest, CountsAsItIsTold) {
  Start(MakeSimulatedEnvironment(1));
  thread_->Run(2);
  for (const Message& message : {Ready(0, 0), Ready(1, 1), Ack(0, 0)}) {
    // One at a time: kAck may not overtake the act that it acknowledges.
    ASSERT_EQ(bus_->Deliver(message), absl::OkStatus());
    auto never = environment_->MakeEvent();
    EXPECT_EQ(environment_->Await(*never, kSecond).code(), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(ran_->is_set());
  const std::vector<Message> expected = {
      {.src = kRelay, .dst = kSource, .reg = 3, .slot = 0, .kind = MessageKind::kAck, .piece = 0},
      {.src = kRelay, .dst = kSink, .reg = 4, .slot = 0, .kind = MessageKind::kReady, .piece = 0},
      {.src = kRelay, .dst = kSource, .reg = 3, .slot = 1, .kind = MessageKind::kAck, .piece = 1},
      {.src = kRelay, .dst = kSink, .reg = 4, .slot = 0, .kind = MessageKind::kReady, .piece = 1}};
  EXPECT_EQ(sent_, expected);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(LonelyNodeTest, ASlotThatIsAlreadyReady) {
  Start(MakeSimulatedEnvironment(1));
  is_holding_ = true;
  EXPECT_EQ(FailureOf({Ready(0, 0), Ready(0, 0)}),
            "actor 'relay' (0/0/7): kReady of register 3 slot 0 from 1/0/1 refused: slot 0 is "
            "already ready (piece 0)");
}

TEST_F(LonelyNodeTest, ASlotThatIsWrittenWhileRead) {
  Start(MakeSimulatedEnvironment(1));
  is_holding_ = true;
  EXPECT_EQ(FailureOf({Ready(0, 0), Ready(1, 1), Ready(0, 2)}),
            "actor 'relay' (0/0/7): kReady of register 3 slot 0 from 1/0/1 refused: slot 0 is "
            "written while read: all 2 slots are ready or in use");
}

TEST_F(LonelyNodeTest, AnAckThatNobodyOwes) {
  Start(MakeSimulatedEnvironment(1));
  EXPECT_EQ(
      FailureOf({Ack(0, 0)}),
      "actor 'relay' (0/0/7): kAck of register 4 slot 0 from 1/0/2 refused: slot 0 with piece "
      "0 was not sent yet");
}

TEST_F(LonelyNodeTest, UnknownSlot) {
  Start(MakeSimulatedEnvironment(1));
  EXPECT_EQ(FailureOf({Ready(2, 0)}),
            "actor 'relay' (0/0/7): kReady of register 3 slot 2 from 1/0/1 refused: slot 2 of 2 "
            "does not exist");
}

TEST_F(LonelyNodeTest, UnknownRegisterActorOrPeer) {
  const auto failure = [this](auto change, Message message) {
    change(message);
    Start(MakeSimulatedEnvironment(1));
    std::string failure = FailureOf({message});
    TearDown();
    failures_.clear();
    return failure;
  };
  EXPECT_EQ(
      failure([](Message& message) { message.reg = 9; }, Ready(0, 0)),
      "message refused (kReady 1/0/1 -> 0/0/7 register 9 slot 0 piece 0): actor 'relay' reads "
      "no register 9");
  EXPECT_EQ(failure([](Message& message) { message.reg = 3; }, Ack(0, 0)),
            "message refused (kAck 1/0/2 -> 0/0/7 register 3 slot 0 piece 0): actor 'relay' writes "
            "no register 3");
  EXPECT_EQ(failure([](Message& message) { message.dst.task = 8; }, Ready(0, 0)),
            "message refused (kReady 1/0/1 -> 0/0/8 register 3 slot 0 piece 0): there is no such "
            "actor");
  EXPECT_EQ(failure([](Message& message) { message.src.task = 5; }, Ready(0, 0)),
            "message refused (kReady 1/0/5 -> 0/0/7 register 3 slot 0 piece 0): actor 'relay' has "
            "register 3 from 1/0/1");
  EXPECT_EQ(failure([](Message& message) { message.src.task = 5; }, Ack(0, 0)),
            "message refused (kAck 1/0/5 -> 0/0/7 register 4 slot 0 piece 0): register 4 of actor "
            "'relay' is not for 1/0/5");
  EXPECT_EQ(failure([](Message& message) { message.kind = MessageKind::kRun; }, Ready(0, 1)),
            "message refused (kRun 1/0/1 -> 0/0/7 register 3 slot 0 piece 1): only a whole thread "
            "runs or is done");
  const auto run = [](int64_t steps) {
    return [steps](Message& message) {
      message.kind = MessageKind::kRun;
      message.dst.task = kWholeThread;
      message.piece = steps;
    };
  };
  EXPECT_NE(failure(run(-1), Ready(0, 0)).find("a session runs 1 to 2147483648 steps"),
            std::string::npos);
  EXPECT_NE(failure(run(INT64_MAX), Ready(0, 0)).find("a session runs 1 to 2147483648 steps"),
            std::string::npos);
  thread_.reset();
}

TEST_F(LonelyNodeTest, AMessageForNoThreadIsRefusedAtTheDoor) {
  Start(MakeSimulatedEnvironment(1));
  Message message = Ready(0, 0);
  message.dst.thread = 1;
  EXPECT_EQ(bus_->Deliver(message).message(),
            "message refused (kReady 1/0/1 -> 0/1/7 register 3 slot 0 piece 0): node 0 has no "
            "thread 0/1");
  message = Ready(0, 0);
  message.dst.node = 1;
  EXPECT_EQ(bus_->Deliver(message).code(), absl::StatusCode::kInvalidArgument);
  message = Ready(0, 0);
  message.src = kRelay;
  EXPECT_EQ(bus_->Deliver(message).code(), absl::StatusCode::kInvalidArgument);
  auto never = environment_->MakeEvent();
  EXPECT_EQ(environment_->Await(*never, kSecond).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(failures_.empty());
}

// Whatever a peer sends, in whatever order: a Status at most.
TEST_F(LonelyNodeTest, RandomMessagesNeverCrash) {
  int failures = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Start(MakeSimulatedEnvironment(seed));
    SeededChoice choice(seed);
    thread_->Run(100);
    for (int i = 0; i < 20; ++i) {
      Message message = choice.Below(2) == 0 ? Ready(choice.Below(3), choice.Below(3))
                                             : Ack(choice.Below(2), choice.Below(3));
      if (choice.Below(10) == 0) message.dst.task = choice.Below(9);
      if (choice.Below(10) == 0) message.dst.task = kWholeThread;
      if (choice.Below(10) == 0) message.kind = static_cast<MessageKind>(choice.Below(4));
      if (choice.Below(10) == 0) message.reg = choice.Below(6);
      if (choice.Below(10) == 0) message.piece = static_cast<int64_t>(choice.Next());
      EXPECT_EQ(bus_->Deliver(message), absl::OkStatus());
      auto never = environment_->MakeEvent();
      EXPECT_EQ(environment_->Await(*never, kSecond).code(), absl::StatusCode::kInternal);
    }
    failures += static_cast<int>(failures_.size());
    EXPECT_LE(failures_.size(), 1u);
    TearDown();
    failures_.clear();
    sent_.clear();
  }
  thread_.reset();
  EXPECT_GT(failures, 250);
}

TEST_F(LonelyNodeTest, ALinkThatDoesNotSend) {
  send_status_ = absl::UnavailableError("link 0-1 lost");
  Start(MakeSimulatedEnvironment(1));
  EXPECT_EQ(FailureOf({Ready(0, 0)}),
            "actor 'relay' (0/0/7): cannot send kAck of register 3 slot 0 to 1/0/1: link 0-1 lost");
  EXPECT_EQ(failures_[0].code(), absl::StatusCode::kUnavailable);
}

TEST_F(LonelyNodeTest, DescribeTellsWhatEachActorWaitsFor) {
  Start(MakeSimulatedEnvironment(1));
  const auto settle = [this] {
    auto never = environment_->MakeEvent();
    EXPECT_EQ(environment_->Await(*never, kSecond).code(), absl::StatusCode::kInternal);
  };
  const auto report = [this] { return thread_->Describe().at(0); };
  settle();
  ASSERT_EQ(report().waits.size(), 1u);
  EXPECT_EQ(report().waits[0].what, Wait::For::kCredit);
  thread_->Run(3);
  settle();
  ASSERT_EQ(report().waits.size(), 1u);
  EXPECT_EQ(report().waits[0].what, Wait::For::kReady);
  EXPECT_EQ(report().waits[0].reg, 3u);
  EXPECT_EQ(report().waits[0].slot, 0u);
  EXPECT_EQ(report().waits[0].piece, 0);
  EXPECT_EQ(report().waits[0].peer, kSource);
  is_holding_ = true;
  EXPECT_EQ(bus_->Deliver(Ready(0, 0)), absl::OkStatus());
  settle();
  ASSERT_EQ(report().waits.size(), 1u);
  EXPECT_EQ(report().waits[0].what, Wait::For::kAction);
  held_[0](absl::OkStatus());
  held_.clear();
  settle();
  EXPECT_EQ(report().name, "relay");
  EXPECT_EQ(report().id, kRelay);
  EXPECT_EQ(report().acts_done, 1);
  EXPECT_EQ(report().acts_credited, 3);
  EXPECT_GT(report().since, 0);
  ASSERT_EQ(report().waits.size(), 2u);
  EXPECT_EQ(report().waits[0].slot, 1u);
  EXPECT_EQ(report().waits[0].piece, 1);
  EXPECT_EQ(report().waits[1].what, Wait::For::kAck);
  EXPECT_EQ(report().waits[1].reg, 4u);
  EXPECT_EQ(report().waits[1].slot, 0u);
  EXPECT_EQ(report().waits[1].piece, 0);
  EXPECT_EQ(report().waits[1].peer, kSink);
}

TEST_F(LonelyNodeTest, DoneClosesTheThread) {
  Start(MakeSimulatedEnvironment(1));
  Message done = Ready(0, 0);
  done.dst.task = kWholeThread;
  done.kind = MessageKind::kDone;
  EXPECT_EQ(bus_->Deliver(done), absl::OkStatus());
  EXPECT_EQ(environment_->Await(*closed_, kSecond), absl::OkStatus());
  EXPECT_TRUE(thread_->has_stopped());
  EXPECT_TRUE(failures_.empty());
}

TEST_F(LonelyNodeTest, AbortWaitsForActsThatAreRunningOnOtherThreads) {
  is_holding_ = true;
  Start(MakeRealEnvironment());
  auto is_held = environment_->MakeEvent();
  thread_->Run(1);
  EXPECT_EQ(bus_->Deliver(Ready(0, 0)), absl::OkStatus());
  // Posted work runs after the messages that were polled before it.
  while (!is_held->is_set()) {
    auto looked = environment_->MakeEvent();
    reactor_->Post([&] {
      if (!held_.empty()) is_held->Set();
      looked->Set();
    });
    ASSERT_EQ(environment_->Await(*looked, 20 * kSecond), absl::OkStatus());
  }
  thread_->Abort(absl::CancelledError("enough"));
  EXPECT_EQ(environment_->Await(*closed_, 20 * kMillisecond).code(),
            absl::StatusCode::kDeadlineExceeded);
  std::thread other([done = held_[0]] { done(absl::OkStatus()); });
  held_.clear();
  EXPECT_EQ(environment_->Await(*closed_, 20 * kSecond), absl::OkStatus());
  other.join();
  EXPECT_EQ(thread_->cause(), absl::CancelledError("enough"));
  EXPECT_TRUE(sent_.empty());
}

TEST(ActorFailureTest, AFailingActionIsNamedWhereverItEnds) {
  for (const Completion completion :
       {Completion::kInside, Completion::kLaterOnThread, Completion::kFromElsewhere}) {
    for (uint64_t seed = 0; seed <= 50; ++seed) {
      auto environment = seed == 0 ? MakeRealEnvironment() : MakeSimulatedEnvironment(seed);
      ActorCluster cluster(environment.get(), seed);
      const int a = cluster.AddActor("reader");
      const int b = cluster.AddActor("fc1", {.completion = completion, .fails_at = 2});
      cluster.AddRegister(a, {b}, {.slots = 2});
      ASSERT_EQ(cluster.Start(), absl::OkStatus());
      EXPECT_EQ(cluster.RunAndAwait(10),
                absl::DataLossError("actor 'fc1' (0/0/1): act 2 failed: the disk is wet"));
      cluster.Close();
      EXPECT_EQ(cluster.failures().size(), 1u);
      EXPECT_EQ(cluster.values(b).size(), 3u);
    }
  }
}

TEST(ActorFailureTest, AbortWithActsEverywhere) {
  for (uint64_t seed = 0; seed <= 100; ++seed) {
    auto environment = seed == 0 ? MakeRealEnvironment() : MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    for (uint16_t i = 0; i < 6; ++i) {
      cluster.AddActor("x", {.node = static_cast<uint16_t>(i % 2),
                             .thread = static_cast<uint16_t>(i % 3),
                             .completion = static_cast<Completion>(i % 3)});
    }
    for (int i = 0; i < 5; ++i) cluster.AddRegister(i, {i + 1}, {.slots = 2});
    ASSERT_EQ(cluster.Start(), absl::OkStatus());
    cluster.Run(1000000);
    auto never = environment->MakeEvent();
    EXPECT_EQ(environment->Await(*never, 50 * kMicrosecond).code(),
              absl::StatusCode::kDeadlineExceeded);
    cluster.Close();
    EXPECT_TRUE(cluster.failures().empty());
  }
}

// What an actor tells a neighbour after a message of the same act could not be sent.
TEST(ActorFailureTest, NothingFiresAfterALinkDidNotSend) {
  class Broken final : public RemoteSender {
    absl::Status Send(const Message&) override { return absl::UnavailableError("link 0-1 lost"); }
  };
  class Count final : public Action {
   public:
    explicit Count(int* acts) : acts_(*acts) {}
    void Start(const Act&, ActDone done) override {
      ++acts_;
      done(absl::OkStatus());
    }

   private:
    int& acts_;
  };
  for (const bool is_simulated : {false, true}) {
    auto environment = is_simulated ? MakeSimulatedEnvironment(1) : MakeRealEnvironment();
    auto closed = environment->MakeEvent(), failed = environment->MakeEvent();
    auto reactor = environment->StartReactor("actors");
    Broken broken;
    MessageBus bus(0, &broken);
    ActorThread thread({.order = is_simulated ? std::make_unique<SeededChoice>(0) : nullptr,
                        .on_failure = [&](const absl::Status&) { failed->Set(); },
                        .on_closed = [&] { closed->Set(); }},
                       reactor.get(), &bus);
    const ActorId writer{0, 0, 0}, reader{0, 0, 1}, far{1, 0, 0};
    int written = 0, read = 0;
    ASSERT_EQ(thread.AddActor({.id = writer,
                               .outputs = {{.reg = 0, .slots = 2, .consumers = {far}},
                                           {.reg = 1, .slots = 2, .consumers = {reader}}}},
                              std::make_unique<Count>(&written)),
              absl::OkStatus());
    ASSERT_EQ(
        thread.AddActor({.id = reader, .inputs = {{.reg = 1, .producer = writer, .slots = 2}}},
                        std::make_unique<Count>(&read)),
        absl::OkStatus());
    ASSERT_EQ(bus.Start(), absl::OkStatus());
    thread.Run(5);
    EXPECT_EQ(environment->Await(*failed, 20 * kSecond), absl::OkStatus());
    thread.Abort(absl::CancelledError("test ends"));
    EXPECT_EQ(environment->Await(*closed, 20 * kSecond), absl::OkStatus());
    reactor.reset();
    EXPECT_EQ(written, 1);
    EXPECT_EQ(read, 0);
  }
}

// A spec that is wrong, and how it is refused.
std::string StartError(const std::function<void(ActorCluster&)>& build) {
  auto environment = MakeSimulatedEnvironment(1);
  ActorCluster cluster(environment.get(), 1);
  const int a = cluster.AddActor("a");
  const int b = cluster.AddActor("b", {.thread = 1});
  cluster.AddRegister(a, {b}, {.slots = 2});
  build(cluster);
  return std::string(cluster.Start().message());
}

TEST(ActorFailureTest, SpecsThatDoNotFitAreNamed) {
  EXPECT_EQ(StartError([](ActorCluster&) {}), "");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(0).acts_per_step = 0; }),
            "actor 'a' (0/0/0): it acts 0 times a step");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(0).outputs[0].slots = 0; }),
            "actor 'a' (0/0/0): output register 0 has 0 slots, period 1, 0 initial tokens; slots "
            "and period are at least 1, tokens at most the slots");
  EXPECT_EQ(StartError([](ActorCluster& cluster) {
              cluster.spec(1).inputs.push_back(cluster.spec(1).inputs[0]);
            }),
            "actor 'b' (0/1/1): input register 0 is listed twice");
  EXPECT_EQ(StartError([](ActorCluster& cluster) {
              cluster.spec(0).outputs[0].consumers.push_back({0, 1, 1});
            }),
            "actor 'a' (0/0/0): output register 0 lists consumer 0/1/1 twice");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(1).inputs[0].slots = 3; }),
            "register 0 has 2 slots and 0 initial tokens at its producer 'a' (0/0/0), 3 and 0 at "
            "its consumer 'b' (0/1/1)");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(1).inputs.clear(); }),
            "actor 'a' (0/0/0) writes register 0 for 'b' (0/1/1), which does not read it from "
            "there");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(0).outputs.clear(); }),
            "actor 'b' (0/1/1) reads register 0, but 'a' (0/0/0) has no such output for it");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(1).inputs[0].producer.task = 9; }),
            "actor 'a' (0/0/0) writes register 0 for 'b' (0/1/1), which does not read it from "
            "there");
  EXPECT_EQ(StartError([](ActorCluster& cluster) { cluster.spec(1).id.task = 9; }),
            "actor 'a' (0/0/0) writes register 0 for 0/1/1, which does not exist");
}

}  // namespace
}  // namespace braid
