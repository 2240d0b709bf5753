// A Coordinator whose nodes are the test: they answer late, wrongly, twice or not at all, and are
// lost in the middle.
#include "runtime/coordinator.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/plan_relay.h"
#include "runtime/reports/control_status.h"
#include "tests/runtime/fake_control.h"

namespace braid {
namespace {

using control::ControlMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kNodes = 3;

ControlMessage Failure(const absl::Status& cause, bool is_link = false) {
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, 1);
  message.mutable_failure()->set_is_link(is_link);
  return message;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() {
    coordinator_ = std::make_unique<Coordinator>(
        CoordinatorOptions{.environment = environment_.get(),
                           .name_of = {},
                           .silence_of = {},
                           .on_failure =
                               [this](const absl::Status& cause) {
                                 failures_.push_back(std::string(cause.message()));
                               },
                           .plan_fan_out = 2});
    for (int i = 0; i < kNodes; ++i) {
      nodes_.push_back(std::make_unique<FakeControl>(*environment_, &coordinator_->reactor()));
      nodes_[i]->react = [this, i](const ControlMessage& message) { Answer(i, message); };
    }
  }

  ~CoordinatorTest() override {
    coordinator_.reset();
    // The channels die on its reactor, which has ended.
  }

  // What a node that does as it should answers.
  void Answer(int node, const ControlMessage& message) {
    if (silent_.contains({node, message.kind_case()})) return;
    ControlMessage answer;
    switch (message.kind_case()) {
      case ControlMessage::kLoad:
        answer.mutable_loaded()->set_job(message.load().job());
        break;
      case ControlMessage::kPlanChunk:
        answer.mutable_plan_taken()->set_job(message.plan_chunk().job());
        break;
      case ControlMessage::kRun:
        answer.mutable_run_done()->set_job(message.run().job());
        break;
      case ControlMessage::kProbe:
        answer = message;
        break;
      case ControlMessage::kClose:
        answer.mutable_closed();
        break;
      default:
        return;
    }
    nodes_[node]->Say(answer);
  }
  void Silence(int node, ControlMessage::KindCase kind) { silent_.insert({node, kind}); }

  absl::Status Join() {
    std::vector<std::unique_ptr<ControlChannel>> channels;
    for (int i = 0; i < kNodes; ++i) {
      channels.push_back(nodes_[i]->MakeChannel());
      if (hello_[i].protocol() == 0) hello_[i].set_protocol(kControlProtocol);
      hello_[i].set_node(i);
    }
    // They wait for the handlers, as a channel's do.
    for (int i = 0; i < kNodes; ++i) {
      if (silent_.contains({i, ControlMessage::kHello})) continue;
      ControlMessage message;
      *message.mutable_hello() = hello_[i];
      nodes_[i]->SayWhenHeard(message);
    }
    return coordinator_->Join(std::move(channels), 10 * kSecond);
  }
  absl::Status Load(JobId job, std::string plan = "plan") {
    return coordinator_->Load({.job = job, .name = "train", .plan = std::move(plan)}).status();
  }
  // A simulated world in which nothing is left to happen ends a wait before its limit.
  void KeepTimeGoing() {
    coordinator_->reactor().Post(
        [this] { coordinator_->reactor().RunAfter(100 * kSecond, [] {}); });
  }
  std::vector<std::string> CausesHeardBy(int node) {
    std::vector<std::string> causes;
    for (const ControlMessage& message : nodes_[node]->Heard(ControlMessage::kFailure)) {
      causes.push_back(message.failure().message());
    }
    return causes;
  }

  const std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(1);
  std::vector<std::string> failures_;
  std::set<std::pair<int, ControlMessage::KindCase>> silent_;
  control::Hello hello_[kNodes];
  std::vector<std::unique_ptr<FakeControl>> nodes_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, JoinsLoadsRunsAndCloses) {
  hello_[2].add_transports("tcp");
  hello_[2].add_addresses("there");
  ASSERT_TRUE(Join().ok());
  for (const auto& node : nodes_) {
    const control::Peers peers = node->Await(ControlMessage::kPeers).peers();
    ASSERT_EQ(peers.nodes_size(), kNodes);
    EXPECT_EQ(peers.nodes(2).addresses(0), "there");
  }
  EXPECT_TRUE(Load(1).ok());
  EXPECT_TRUE(coordinator_->Run({.job = 1, .name = "train", .first_step = 5, .steps = 2}).ok());
  EXPECT_EQ(nodes_[1]->Await(ControlMessage::kRun).run().first_step(), 5);
  EXPECT_TRUE(coordinator_->Close().ok());
  for (const auto& node : nodes_) EXPECT_EQ(node->Heard(ControlMessage::kEnded).size(), 1u);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(CoordinatorTest, WhoDoesNotComeIsNamed) {
  Silence(1, ControlMessage::kHello);
  KeepTimeGoing();
  EXPECT_THAT(std::string(Join().message()), HasSubstr("no answer from node 1 within 10 s"));
}

TEST_F(CoordinatorTest, AnotherProtocolIsRefusedWithBoth) {
  hello_[1].set_protocol(99);
  const absl::Status status = Join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("node 1 speaks control protocol 99"));
}

TEST_F(CoordinatorTest, ALargePlanGoesToTheFirstNodesInChunks) {
  ASSERT_TRUE(Join().ok());
  std::string plan(kPlanChunkBytes * 2 + 9, 'p');
  plan.back() = 'q';
  EXPECT_TRUE(Load(1, plan).ok());
  for (int node : {0, 1}) {
    nodes_[node]->Await(ControlMessage::kPlanChunk, 2);
    std::string whole = nodes_[node]->Await(ControlMessage::kLoad).load().plan();
    for (const ControlMessage& message : nodes_[node]->Heard(ControlMessage::kPlanChunk)) {
      whole += message.plan_chunk().bytes();
    }
    EXPECT_EQ(whole, plan);
  }
  const control::Load load = nodes_[2]->Await(ControlMessage::kLoad).load();
  EXPECT_EQ(load.plan_parent(), 0u);
  EXPECT_EQ(load.plan(), "");
  EXPECT_TRUE(nodes_[2]->Heard(ControlMessage::kPlanChunk).empty());
}

TEST_F(CoordinatorTest, ANodeThatTakesWhatItWasNotSentFails) {
  ASSERT_TRUE(Join().ok());
  ControlMessage taken;
  taken.mutable_plan_taken()->set_job(4);
  nodes_[1]->Say(taken);
  EXPECT_THAT(std::string(Load(1).message()), HasSubstr("it was sent none"));
}

TEST_F(CoordinatorTest, AnswersForOtherJobsAndSecondAnswersDoNotCount) {
  ASSERT_TRUE(Join().ok());
  Silence(2, ControlMessage::kLoad);
  nodes_[1]->react = [this](const ControlMessage& message) {
    Answer(1, message);
    Answer(1, message);
    if (!message.has_load()) return;
    ControlMessage other;  // of node 2, but of an older job
    other.mutable_loaded()->set_job(7);
    nodes_[2]->Say(other);
    // Its own comes in the end.
    coordinator_->reactor().Post([this] {
      coordinator_->reactor().RunAfter(kSecond, [this] {
        ControlMessage loaded;
        loaded.mutable_loaded()->set_job(8);
        nodes_[2]->Say(loaded);
      });
    });
  };
  const Nanoseconds began = environment_->Now();
  EXPECT_TRUE(Load(8).ok());
  EXPECT_GE(environment_->Now() - began, kSecond);
}

TEST_F(CoordinatorTest, ANodeThatCannotLoadIsTheAnswerAndTheJobIsNowhere) {
  ASSERT_TRUE(Join().ok());
  nodes_[1]->react = [this](const ControlMessage& message) {
    if (!message.has_load()) return Answer(1, message);
    ControlMessage loaded;
    loaded.mutable_loaded()->set_job(message.load().job());
    *loaded.mutable_loaded()->mutable_error() = CauseOf(absl::NotFoundError("no such file"), 1);
    nodes_[1]->Say(loaded);
  };
  EXPECT_EQ(Load(1).message(), "node 1: no such file");
  for (const auto& node : nodes_) {
    EXPECT_EQ(node->Await(ControlMessage::kUnload).unload().job(), 1u);
  }
  nodes_[1]->react = [this](const ControlMessage& message) { Answer(1, message); };
  EXPECT_TRUE(Load(2).ok()) << "the session goes on";
}

TEST_F(CoordinatorTest, TheFirstFailureIsTheCauseForAll) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(Load(1).ok());
  Silence(2, ControlMessage::kRun);
  nodes_[1]->react = [this](const ControlMessage& message) {
    if (!message.has_run()) return Answer(1, message);
    nodes_[1]->Say(Failure(absl::InternalError("the first")));
    nodes_[1]->Say(Failure(absl::InternalError("the second")));
    nodes_[1]->HangUp(absl::UnavailableError("gone"));
  };
  EXPECT_EQ(coordinator_->Run({.job = 1, .name = "train"}).message(), "the first");
  EXPECT_EQ(Load(2).message(), "the first") << "of every call from now on";
  nodes_[0]->Pass(kSecond);
  EXPECT_THAT(CausesHeardBy(0), ElementsAre("the first"));
  EXPECT_THAT(failures_, ElementsAre("the first"));
  EXPECT_TRUE(coordinator_->Close().ok()) << "its cause was told already";
}

TEST_F(CoordinatorTest, ALostNodeIsTheCauseWithWhatTheSessionDid) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(Load(1).ok());
  Silence(2, ControlMessage::kRun);
  nodes_[1]->react = [this](const ControlMessage& message) {
    if (message.has_run()) nodes_[1]->HangUp(absl::UnavailableError("reset"));
  };
  EXPECT_EQ(coordinator_->Run({.job = 1, .name = "train"}).message(),
            "node 1 lost while stepping job 'train': reset");
}

TEST_F(CoordinatorTest, ABrokenLinkIsTheCauseOnlyIfAllNodesAreThere) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(Load(1).ok());
  Silence(0, ControlMessage::kRun);
  Silence(2, ControlMessage::kProbe);
  nodes_[1]->react = [this](const ControlMessage& message) {
    Answer(1, message);
    if (!message.has_run()) return;
    nodes_[1]->Say(Failure(absl::UnavailableError("link 1-2 lost"), /*is_link=*/true));
    coordinator_->reactor().Post([this] {
      coordinator_->reactor().RunAfter(
          kSecond, [this] { nodes_[2]->HangUp(absl::UnavailableError("no heartbeat")); });
    });
  };
  EXPECT_THAT(std::string(coordinator_->Run({.job = 1, .name = "train"}).message()),
              HasSubstr("node 2 lost while"));
}

TEST_F(CoordinatorTest, ABrokenLinkBetweenNodesThatAnswerIsTheCause) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(Load(1).ok());
  Silence(0, ControlMessage::kRun);
  nodes_[1]->react = [this](const ControlMessage& message) {
    Answer(1, message);
    if (!message.has_run()) return;
    nodes_[1]->Say(Failure(absl::UnavailableError("link 1-2 lost"), /*is_link=*/true));
  };
  EXPECT_EQ(coordinator_->Run({.job = 1, .name = "train"}).message(), "link 1-2 lost");
}

TEST_F(CoordinatorTest, WhatIsNoMessageOrNotANodesIsAFailure) {
  ASSERT_TRUE(Join().ok());
  nodes_[1]->SayBytes("\xff\xff");
  nodes_[1]->Pass(kSecond);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("node 1 sent a control message of 2 bytes that")));
}

TEST_F(CoordinatorTest, AnOrderFromANodeIsAFailure) {
  ASSERT_TRUE(Join().ok());
  ControlMessage run;
  run.mutable_run()->set_job(1);
  nodes_[1]->Say(run);
  nodes_[1]->Pass(kSecond);
  EXPECT_THAT(failures_, ElementsAre("node 1 sent a control message of kind 5"));
}

TEST_F(CoordinatorTest, ARequestThatTheStoreDoesNotTakeIsAFailure) {
  ASSERT_TRUE(Join().ok());
  ControlMessage waiting, fitting, wrong;
  waiting.mutable_store_request()->set_kind(control::StoreRequest::GET);
  waiting.mutable_store_request()->add_keys("a");
  waiting.mutable_store_request()->set_timeout(kSecond);
  nodes_[1]->Say(waiting);
  fitting.mutable_store_request()->set_kind(control::StoreRequest::NUM_KEYS);
  nodes_[2]->Say(fitting);
  EXPECT_FALSE(nodes_[2]->Await(ControlMessage::kStoreAnswer).store_answer().has_error());
  wrong.mutable_store_request()->set_kind(static_cast<control::StoreRequest::Kind>(77));
  nodes_[2]->Say(wrong);
  EXPECT_THAT(std::string(Load(1).message()),
              HasSubstr("node 2 sent a request that the store does not take: there is none of kind "
                        "77 with 0 keys"));
  // Whoever waits is told of the failure only.
  nodes_[1]->Pass(2 * kSecond);
  EXPECT_TRUE(nodes_[1]->Heard(ControlMessage::kStoreAnswer).empty());
}

TEST_F(CoordinatorTest, CloseTellsTheCauseToAll) {
  ASSERT_TRUE(Join().ok());
  EXPECT_TRUE(coordinator_->Close(absl::CancelledError("interrupted")).ok());
  for (const auto& node : nodes_) {
    EXPECT_EQ(node->Await(ControlMessage::kClose).close().cause().message(), "interrupted");
    EXPECT_TRUE(node->Heard(ControlMessage::kEnded).empty());
  }
}

TEST_F(CoordinatorTest, ANodeThatIsLostWhileClosingIsWhatCloseReturns) {
  ASSERT_TRUE(Join().ok());
  nodes_[1]->react = [this](const ControlMessage& message) {
    if (message.has_close()) nodes_[1]->HangUp(absl::UnavailableError("reset"));
  };
  EXPECT_EQ(coordinator_->Close().message(), "node 1 lost while closing: reset");
  // As it comes, and before the connections are closed.
  EXPECT_THAT(CausesHeardBy(0),
              ElementsAre("node 1 lost while closing: reset", "node 1 lost while closing: reset"));
  EXPECT_TRUE(nodes_[0]->Heard(ControlMessage::kEnded).empty());
}

TEST_F(CoordinatorTest, AFailureThatNoCallHasReturnedIsWhatCloseReturns) {
  ASSERT_TRUE(Join().ok());
  ASSERT_TRUE(Load(1).ok());
  nodes_[1]->HangUp(absl::UnavailableError("reset"));
  nodes_[0]->Pass(kSecond);
  EXPECT_THAT(std::string(coordinator_->Close().message()), StartsWith("node 1 lost while"));
}

TEST_F(CoordinatorTest, ANodeThatNeverClosesIsNamed) {
  ASSERT_TRUE(Join().ok());
  Silence(2, ControlMessage::kClose);
  KeepTimeGoing();
  EXPECT_EQ(coordinator_->Close().message(),
            "closing the session: no answer from node 2 within 15 s");
}

}  // namespace
}  // namespace braid
