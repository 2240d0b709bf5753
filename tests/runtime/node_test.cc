// A Node whose master is the test: it says what no master would, in orders that no session has, and
// sees what the node answers and how it ends.
#include "runtime/node.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/loopback_transport.h"
#include "comm/peers/peers.h"
#include "compiler/plan/plan_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/reports/control_status.h"
#include "tests/runtime/fake_control.h"
#include "tests/runtime/probe_plan.h"

namespace braid {
namespace {

using control::ControlMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ControlMessage CauseMessage(const absl::Status& cause) {
  ControlMessage message;
  *message.mutable_failure() = CauseOf(cause, 3);
  return message;
}

ControlMessage RunMessage(JobId job, int64_t first_step, int64_t steps) {
  ControlMessage message;
  message.mutable_run()->set_job(job);
  message.mutable_run()->set_first_step(first_step);
  message.mutable_run()->set_steps(steps);
  message.mutable_run()->set_phase("stepping job 'probe'");
  return message;
}

class NodeTest : public ::testing::Test {
 protected:
  explicit NodeTest(std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(1))
      : environment_(std::move(environment)),
        kernels_(ProbeKernels(&probe_)),
        plan_(compiler::EncodePlan(ProbeGraph(1))) {}

  ~NodeTest() override { node_.reset(); }

  void Serve() {
    NodeOptions options;
    options.environment = environment_.get();
    options.loopback = &network_;
    options.kernels = &kernels_;
    options.on_failure = [this](const absl::Status& cause) {
      MutexLock lock(mutex_);
      warnings_.push_back(std::string(cause.message()));
    };
    node_ = std::make_unique<Node>(options);
    master_ = std::make_unique<FakeControl>(*environment_, &node_->reactor());
    node_->Serve(master_->MakeChannel(), [this](absl::Status cause) {
      MutexLock lock(mutex_);
      ends_.push_back(std::move(cause));
    });
    master_->Await(ControlMessage::kHello);
  }

  ControlMessage LoadMessage(JobId job, const std::string& plan) const {
    ControlMessage message;
    control::Load& load = *message.mutable_load();
    load.set_job(job);
    load.set_plan(plan);
    load.set_fingerprint(compiler::PlanFingerprint(plan));
    load.set_phase("connecting job 'probe'");
    return message;
  }
  ControlMessage LoadMessage(JobId job) const { return LoadMessage(job, plan_); }

  // Its answer.
  control::Loaded Load(const ControlMessage& load) {
    const size_t before = master_->Heard(ControlMessage::kLoaded).size();
    master_->Say(load);
    return master_->Await(ControlMessage::kLoaded, before + 1).loaded();
  }
  void Close() {
    ControlMessage close;
    close.mutable_close();
    master_->Say(close);
    master_->Await(ControlMessage::kClosed);
  }
  void End() {
    ControlMessage ended;
    ended.mutable_ended();
    master_->Say(ended);
  }

  // The statuses that Serve's callback got, once there are some.
  std::vector<absl::Status> Ends() {
    for (int round = 0; round < 20000; ++round) {
      {
        MutexLock lock(mutex_);
        if (!ends_.empty()) break;
      }
      master_->Pass(kMillisecond);
    }
    master_->Pass(10 * kMillisecond);
    MutexLock lock(mutex_);
    return ends_;
  }
  std::string EndMessage() {
    const std::vector<absl::Status> ends = Ends();
    EXPECT_EQ(ends.size(), 1u);
    return ends.empty() ? "" : std::string(ends[0].message());
  }
  bool HasEnded() {
    master_->Pass(10 * kMillisecond);
    MutexLock lock(mutex_);
    return !ends_.empty();
  }
  std::vector<std::string> warnings() {
    MutexLock lock(mutex_);
    return warnings_;
  }
  // What it told the master of its failures.
  std::vector<std::string> Failures() const {
    std::vector<std::string> failures;
    for (const ControlMessage& message : master_->Heard(ControlMessage::kFailure)) {
      failures.push_back(message.failure().message());
    }
    return failures;
  }

  const std::unique_ptr<Environment> environment_;
  LoopbackNetwork network_;
  Probe probe_;
  const KernelRegistry kernels_;
  const std::string plan_;
  Mutex mutex_;
  std::vector<absl::Status> ends_ BRAID_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ BRAID_GUARDED_BY(mutex_);
  std::unique_ptr<FakeControl> master_;
  std::unique_ptr<Node> node_;
};

// ---- what sessions do ---------------------------------------------------------------------------

TEST_F(NodeTest, SaysHelloLoadsRunsUnloadsAndEnds) {
  Serve();
  const control::Hello hello = master_->heard()[0].hello();
  EXPECT_EQ(hello.protocol(), kControlProtocol);
  EXPECT_EQ(hello.transports(0), "loopback");
  ControlMessage load = LoadMessage(1);
  load.mutable_load()->set_wants_summary(true);
  const control::Loaded loaded = Load(load);
  EXPECT_FALSE(loaded.has_error()) << loaded.error().message();
  EXPECT_EQ(loaded.job(), 1u);
  EXPECT_GT(loaded.summary().tasks(), 0u);
  CountingReceiver receiver;
  node_->Host(1).SetReceiver(&receiver);
  master_->Say(RunMessage(1, 0, 3));
  EXPECT_EQ(master_->Await(ControlMessage::kRunDone).run_done().job(), 1u);
  EXPECT_EQ(receiver.count(), 3);
  ControlMessage unload;
  unload.mutable_unload()->set_job(1);
  master_->Say(unload);
  Close();
  EXPECT_FALSE(HasEnded()) << "others may still fail";
  End();
  EXPECT_THAT(Ends(), ElementsAre(absl::OkStatus()));
  EXPECT_TRUE(Failures().empty());
  EXPECT_TRUE(warnings().empty());
}

TEST_F(NodeTest, AnswersAProbeAndAQuestionAlsoOnceItHasClosed) {
  Serve();
  Close();
  ControlMessage probe, status;
  probe.mutable_probe()->set_number(77);
  status.mutable_status()->set_request(5);
  master_->Say(probe);
  master_->Say(status);
  EXPECT_EQ(master_->Await(ControlMessage::kProbe).probe().number(), 77u);
  EXPECT_EQ(master_->Await(ControlMessage::kStatus).status().request(), 5u);
}

// ---- what a master may not say ------------------------------------------------------------------

TEST_F(NodeTest, RunOfAnUnknownJobIsAFailure) {
  Serve();
  master_->Say(RunMessage(7, 0, 1));
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures(), ElementsAre("node 0: Run of unknown job 7"));
}

TEST_F(NodeTest, RunWhileLoadingOrRunningIsAFailure) {
  Serve();
  master_->Say(LoadMessage(1));
  master_->Say(RunMessage(1, 0, 1));
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures()[0], HasSubstr("Run of 1 steps from step 0"));
  EXPECT_THAT(Failures()[0], HasSubstr("which is loading"));
  master_->Await(ControlMessage::kLoaded);
  master_->Say(RunMessage(1, 0, 1000));
  master_->Say(RunMessage(1, 1000, 1));
  master_->Await(ControlMessage::kFailure, 2);
  EXPECT_THAT(Failures()[1], HasSubstr("job 'probe', which is running"));
}

TEST_F(NodeTest, StepsOutOfRangeAreAFailure) {
  Serve();
  Load(LoadMessage(1));
  for (const auto& [first, steps] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 1}, {0, 0}, {0, int64_t{1} << 40}}) {
    const size_t before = Failures().size();
    master_->Say(RunMessage(1, first, steps));
    master_->Await(ControlMessage::kFailure, before + 1);
    EXPECT_THAT(Failures().back(), HasSubstr("job 'probe', which is ready"));
  }
}

TEST_F(NodeTest, NumbersOfJobsGoUp) {
  Serve();
  Load(LoadMessage(5));
  master_->Say(LoadMessage(5));
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures(), ElementsAre("node 0: Load of job 5 after job 5; their numbers go up"));
}

TEST_F(NodeTest, UnloadOfAnUnknownJobChangesNothing) {
  Serve();
  ControlMessage unload;
  unload.mutable_unload()->set_job(9);
  master_->Say(unload);
  EXPECT_FALSE(Load(LoadMessage(10)).has_error());
  EXPECT_TRUE(Failures().empty());
}

TEST_F(NodeTest, WhatIsNoMessageOrNoOrderIsAFailure) {
  Serve();
  master_->SayBytes("\xff\xff\xff");
  ControlMessage ended;
  ended.mutable_ended();
  master_->Say(ended);
  ControlMessage hello;
  hello.mutable_hello();
  master_->Say(hello);
  ControlMessage request, answer;
  request.mutable_store_request();
  master_->Say(request);
  answer.mutable_store_answer()->set_number(5);
  master_->Say(answer);
  master_->Await(ControlMessage::kFailure, 5);
  EXPECT_THAT(Failures(), ElementsAre(HasSubstr("of 3 bytes cannot be read"),
                                      HasSubstr("the master sent a control message of kind 14"),
                                      HasSubstr("the master sent a control message of kind 1"),
                                      HasSubstr("the master sent a control message of kind 24"),
                                      HasSubstr("node 0: the master answers request 5 of the "
                                                "store; of the 0 that were made")));
}

TEST_F(NodeTest, AddressesWithoutTransportsAreAFailure) {
  Serve();
  ControlMessage peers;
  control::Hello& hello = *peers.mutable_peers()->add_nodes();
  hello.set_node(1);
  hello.add_transports("tcp");
  master_->Say(peers);
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures()[0], HasSubstr("1 transports and 0 addresses of node 1"));
}

// ---- what fails while a job is loaded -----------------------------------------------------------

TEST_F(NodeTest, AnotherPlanThanTheMasterSaysIsRefusedWithBothFingerprints) {
  Serve();
  ControlMessage load = LoadMessage(1);
  load.mutable_load()->set_fingerprint(0xabc);
  const control::Loaded loaded = Load(load);
  ASSERT_TRUE(loaded.has_error());
  EXPECT_THAT(loaded.error().message(), HasSubstr("abc"));
  EXPECT_FALSE(Load(LoadMessage(2)).has_error()) << "the session goes on";
}

TEST_F(NodeTest, AKernelThatCannotBeMadeIsNamed) {
  probe_.make = [] { return absl::NotFoundError("no licence"); };
  Serve();
  const control::Loaded loaded = Load(LoadMessage(1));
  ASSERT_TRUE(loaded.has_error());
  EXPECT_THAT(loaded.error().message(), HasSubstr("probe"));
  EXPECT_THAT(loaded.error().message(), HasSubstr("no licence"));
}

TEST_F(NodeTest, AFailureWhileAJobIsLoadedEndsTheNodeAndItsKernels) {
  int made = 0, ended = 0;
  probe_.make = [&] {
    ++made;
    return absl::OkStatus();
  };
  probe_.end = [&] { ++ended; };
  Serve();
  master_->Say(LoadMessage(1));
  master_->Say(CauseMessage(absl::UnavailableError("node 3 lost")));
  EXPECT_EQ(EndMessage(), "node 3 lost");
  node_.reset();
  EXPECT_EQ(made, ended);
}

TEST_F(NodeTest, AJobThatIsUnloadedWhileItIsLoadedNeverIsReady) {
  int made = 0, ended = 0;
  probe_.make = [&] {
    ++made;
    return absl::OkStatus();
  };
  probe_.end = [&] { ++ended; };
  Serve();
  ControlMessage unload;
  unload.mutable_unload()->set_job(1);
  master_->Say(LoadMessage(1));
  master_->Say(unload);
  EXPECT_EQ(Load(LoadMessage(2)).job(), 2u);
  Close();
  EXPECT_EQ(made, 2);
  EXPECT_EQ(ended, 2);
}

// ---- failures and ends --------------------------------------------------------------------------

TEST_F(NodeTest, AnActThatFailsIsToldAndTheMastersCauseCounts) {
  probe_.run = [] { return absl::DataLossError("a bit flipped"); };
  Serve();
  Load(LoadMessage(1));
  master_->Say(RunMessage(1, 0, 2));
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures(), ElementsAre(HasSubstr("node 0 failed while stepping job 'probe': ")));
  EXPECT_THAT(Failures()[0], HasSubstr("a bit flipped"));
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("a bit flipped")));
  master_->Say(CauseMessage(absl::InternalError("node 3 was first")));
  EXPECT_EQ(EndMessage(), "node 3 was first");
}

TEST_F(NodeTest, AMasterThatSaysNoCauseLeavesTheNodeWithItsOwn) {
  probe_.run = [] { return absl::DataLossError("a bit flipped"); };
  Serve();
  Load(LoadMessage(1));
  master_->Say(RunMessage(1, 0, 2));
  EXPECT_THAT(EndMessage(), HasSubstr("a bit flipped"));
  EXPECT_EQ(Failures().size(), 1u);
}

TEST_F(NodeTest, TheFirstCauseIsKept) {
  Serve();
  Load(LoadMessage(1));
  master_->Say(CauseMessage(absl::InternalError("the first")));
  master_->Say(CauseMessage(absl::InternalError("the second")));
  master_->HangUp(absl::UnavailableError("the master has ended"));
  EXPECT_EQ(EndMessage(), "the first");
  EXPECT_THAT(warnings(), ElementsAre("the first"));
}

TEST_F(NodeTest, CloseWithACauseEndsItAtOnce) {
  Serve();
  Load(LoadMessage(1));
  ControlMessage close;
  *close.mutable_close()->mutable_cause() = CauseOf(absl::CancelledError("interrupted"), 0);
  master_->Say(close);
  EXPECT_EQ(EndMessage(), "interrupted");
}

TEST_F(NodeTest, AFailureElsewhereAfterTheCloseIsItsCause) {
  Serve();
  Close();
  master_->Say(CauseMessage(absl::UnavailableError("node 3 lost while closing")));
  EXPECT_EQ(EndMessage(), "node 3 lost while closing");
}

TEST_F(NodeTest, ALostMasterIsTheCauseWithWhatTheSessionDid) {
  Serve();
  Load(LoadMessage(1));
  master_->HangUp(absl::UnavailableError("connection reset"));
  EXPECT_EQ(EndMessage(), "master lost while connecting job 'probe': connection reset");
  EXPECT_EQ(warnings().size(), 1u);
}

TEST_F(NodeTest, AnOwnerThatGivesItUpIsNotTold) {
  Serve();
  Load(LoadMessage(1));
  master_->Say(RunMessage(1, 0, 1000));
  node_.reset();
  MutexLock lock(mutex_);
  EXPECT_TRUE(ends_.empty());
}

// ---- frames -------------------------------------------------------------------------------------

// The test is node 1, too, by its Peers.
class NodeWithAPeerTest : public NodeTest {
 protected:
  ~NodeWithAPeerTest() override {
    if (reactor_ != nullptr) reactor_->Post([peers = std::move(peers_)] {});
    reactor_.reset();
  }

  void Join() {
    Serve();
    reactor_ = environment_->StartReactor("peer");
    const std::unique_ptr<Event> joined = environment_->MakeEvent();
    ControlMessage peers;
    reactor_->Post([&] {
      peers_ = std::make_unique<Peers>(
          Peers::Options{.node = 1,
                         .reactor = reactor_.get(),
                         .on_link = {},
                         .on_loss = [this](const LinkLoss& loss) { loss_ = loss; }});
      for (const Channel channel : {Channel::kActor, Channel::kLandingKey, Channel::kCollective}) {
        peers_->SetReceiver(channel,
                            [](uint16_t, std::span<const std::byte>) { return absl::OkStatus(); });
      }
      std::vector<std::unique_ptr<Transport>> transports;
      transports.push_back(MakeLoopbackTransport(1, &network_));
      const std::vector<TransportAddress> addresses = peers_->Open(std::move(transports));
      peers_->SetAddresses(0, addresses);
      control::Hello& hello = *peers.mutable_peers()->add_nodes();
      hello.set_node(1);
      hello.add_transports(addresses[0].transport);
      hello.add_addresses(addresses[0].address);
      peers_->Connect(0, [this](const absl::Status& status) { is_linked_ = status.ok(); });
      joined->Set();
    });
    ASSERT_TRUE(environment_->Await(*joined, kSecond).ok());
    master_->Say(peers);
    // It waits for the landing key of what node 1 would write here.
    master_->Say(LoadMessage(1, compiler::EncodePlan(ProbeGraph(2))));
    for (int round = 0; round < 10000 && !is_linked_; ++round) master_->Pass(kMillisecond);
    ASSERT_TRUE(is_linked_);
  }

  void Send(std::vector<uint8_t> frame) {
    reactor_->Post([this, frame = std::move(frame)] {
      peers_->LinkTo(0)->Send(std::as_bytes(std::span(frame)));
    });
    master_->Pass(10 * kMillisecond);
  }
  // A landing key's frame of a job.
  static std::vector<uint8_t> FrameOf(uint8_t job, size_t bytes = 37) {
    std::vector<uint8_t> frame(bytes);
    frame[0] = static_cast<uint8_t>(Channel::kLandingKey);
    frame[1] = job;
    return frame;
  }

  std::unique_ptr<Peers> peers_;
  std::optional<LinkLoss> loss_;
  bool is_linked_ = false;
  std::unique_ptr<Reactor> reactor_;
};

TEST_F(NodeWithAPeerTest, AFrameForAJobThatWasUnloadedIsDropped) {
  Join();
  ControlMessage unload;
  unload.mutable_unload()->set_job(1);
  master_->Say(unload);
  master_->Pass(10 * kMillisecond);
  Send(FrameOf(1));
  EXPECT_FALSE(loss_.has_value()) << loss_->reason;
  EXPECT_TRUE(Failures().empty());
}

TEST_F(NodeWithAPeerTest, AFrameForAJobToComeWaitsForIt) {
  Join();
  Send(FrameOf(2));
  EXPECT_FALSE(loss_.has_value()) << loss_->reason;
  // The job is here now, and says what is wrong with the frame.
  master_->Say(LoadMessage(2, compiler::EncodePlan(ProbeGraph(2))));
  master_->Await(ControlMessage::kFailure);
  EXPECT_THAT(Failures()[0], HasSubstr("landing key for register 0, which was not expected"));
}

TEST_F(NodeWithAPeerTest, AFrameThatIsTooShortEndsTheLinkAndTheNodeWaitsForTheCause) {
  Join();
  Send(FrameOf(1, 5));
  const control::Cause failure = master_->Await(ControlMessage::kFailure).failure();
  EXPECT_TRUE(failure.is_link());
  EXPECT_THAT(failure.message(), HasSubstr("link 0-1 lost while connecting job 'probe': "));
  EXPECT_TRUE(warnings().empty()) << "the master may know more";
  EXPECT_TRUE(loss_.has_value());
  EXPECT_THAT(EndMessage(), HasSubstr("a frame of channel 3 has 5 bytes"));
}

// ---- users' code --------------------------------------------------------------------------------

// In real threads.
class NodeWithAHeldKernelTest : public NodeTest {
 protected:
  NodeWithAHeldKernelTest() : NodeTest(MakeRealEnvironment()) {
    probe_.end = [this] {
      is_held_ = true;
      environment_->Await(*release_, 60 * kSecond).IgnoreError();
    };
  }

  std::atomic<bool> is_held_{false};
  const std::unique_ptr<Event> release_ = environment_->MakeEvent();
};

TEST_F(NodeWithAHeldKernelTest, ADestructorThatDoesNotReturnIsNamedAndKeepsNobodyFromTheCause) {
  Serve();
  EXPECT_FALSE(Load(LoadMessage(1)).has_error());
  ControlMessage unload, status;
  unload.mutable_unload()->set_job(1);
  master_->Say(unload);
  for (int round = 0; round < 10000 && !is_held_; ++round) master_->Pass(kMillisecond);
  status.mutable_status()->set_request(1);
  master_->Say(status);
  const control::NodeReport report = master_->Await(ControlMessage::kStatus).status().report();
  EXPECT_EQ(report.standing().what(), "destroying the kernels of job 'probe'");
  ControlMessage close;
  close.mutable_close();
  master_->Say(close);
  master_->Say(CauseMessage(absl::UnavailableError("node 3 lost while closing")));
  for (int round = 0; round < 10000 && warnings().empty(); ++round) master_->Pass(kMillisecond);
  EXPECT_THAT(warnings(), ElementsAre("node 3 lost while closing"));
  EXPECT_FALSE(HasEnded()) << "its kernel is still there";
  EXPECT_TRUE(master_->Heard(ControlMessage::kClosed).empty());
  release_->Set();
  EXPECT_EQ(EndMessage(), "node 3 lost while closing");
}

}  // namespace
}  // namespace braid
