// An Executor whose peers are the test: links that keep what is sent, and frames that no peer would
// send.
#include "runtime/executor.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/expand.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device_kinds.h"
#include "runtime/remote_bus.h"
#include "tests/runtime/probe_plan.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr JobId kJob = 4;

// Keeps the frames, and says that every write has gone out.
class KeepingLink final : public Link {
 public:
  KeepingLink(uint16_t peer, Reactor* reactor) : peer_(peer), reactor_(reactor) {}
  uint16_t peer() const override { return peer_; }
  std::string Describe() const override { return "kept"; }
  absl::StatusOr<MemoryKey> Expose(std::span<std::byte> memory) override {
    ++exposed_;
    return MemoryKey{.token = 1, .base = 0, .bytes = memory.size()};
  }
  void Withdraw(const MemoryKey&) override { --exposed_; }
  void Send(std::span<const std::byte> frame) override {
    frames_.emplace_back(frame.begin(), frame.end());
  }
  bool Write(std::span<const std::byte>, const MemoryKey&, uint64_t,
             std::span<const std::byte> frame, DoneCallback done) override {
    Send(frame);
    reactor_->Post([done = std::move(done)] { done(absl::OkStatus()); });
    return false;
  }
  void SetHandler(FrameHandler) override {}
  void OnClosed(std::function<void(absl::Status)>) override {}
  void Close(absl::Status) override {}
  LinkCounters counters() const override { return {}; }

  const std::vector<std::vector<std::byte>>& frames() const { return frames_; }
  int exposed() const { return exposed_; }

 private:
  const uint16_t peer_;
  Reactor* const reactor_;
  int exposed_ = 0;
  std::vector<std::vector<std::byte>> frames_;
};

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest()
      : kernels_(ProbeKernels(&probe_)),
        variables_(&devices_),
        control_(environment_->StartReactor("control")),
        threads_(std::make_unique<StreamThreads>(environment_.get(), 0)) {
    devices_.push_back(MakeCpuDevice({.cpu_kernels = &kernels_}));
  }

  ~ExecutorTest() override {
    if (executor_ != nullptr) Close();
    executor_.reset();
    threads_.reset();
    control_.reset();
  }

  // `node`'s part of the plan for as many nodes.
  absl::Status Load(int nodes, uint16_t node, uint16_t as_node) {
    graph_ = ProbeGraph(nodes);
    auto part = compiler::ExpandPlan(graph_, node);
    EXPECT_TRUE(part.ok()) << part.status();
    part_ = *std::move(part);
    collectives_ = std::make_unique<CollectiveHub>(as_node);
    host_.SetReceiver(&receiver_);
    auto prepared =
        PrepareKernels(part_, {.devices = &devices_, .datasets = &datasets_, .host = &host_},
                       [](const compiler::KernelCall*) {});
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    NodeResources resources;
    resources.node = as_node;
    resources.environment = environment_.get();
    resources.control = control_.get();
    resources.threads = threads_.get();
    resources.devices = &devices_;
    resources.variables = &variables_;
    resources.datasets = &datasets_;
    resources.collectives = collectives_.get();
    resources.link_of = [this](uint16_t peer) -> Link* {
      auto& link = links_[peer];
      if (link == nullptr) link = std::make_unique<KeepingLink>(peer, control_.get());
      return link.get();
    };
    ExecutorOptions options;
    options.job = kJob;
    options.on_ready = [this] { ++ready_; };
    options.on_run_done = [this] { ++runs_done_; };
    options.on_failure = [this](absl::Status status) {
      failures_.push_back(std::string(status.message()));
    };
    executor_ = std::make_unique<Executor>(resources, std::move(options));
    absl::Status status;
    On([&] { status = executor_->Load(part_, *prepared); });
    if (!status.ok()) {
      Close();
      executor_.reset();
    }
    return status;
  }
  void Connect() {
    On([&] { EXPECT_TRUE(executor_->Connect().ok()); });
    Pass();
  }
  void Run(int64_t first_step, int64_t steps) {
    On([&] { executor_->Run(first_step, steps); });
    Pass();
  }
  absl::Status OnFrame(uint16_t peer, std::span<const std::byte> frame) {
    absl::Status status;
    On([&] { status = executor_->OnFrame(peer, frame); });
    return status;
  }
  // The frame by which `peer` gives a landing key.
  std::vector<std::byte> KeyFrame(RegisterId reg) {
    KeepingLink link(0, control_.get());
    SendLandingKey(link, kJob, {.reg = reg, .key = {.token = 1, .base = 0, .bytes = 4096}});
    return link.frames()[0];
  }
  void Close() {
    int closed = 0;
    On([&] {
      collectives_->Abort(absl::CancelledError("over"));
      executor_->Close(absl::CancelledError("over"), [&] { ++closed; });
    });
    Pass();
    EXPECT_EQ(closed, 1);
  }

  void On(const std::function<void()>& fn) {
    const std::unique_ptr<Event> done = environment_->MakeEvent();
    control_->Post([&] {
      fn();
      done->Set();
    });
    ASSERT_TRUE(environment_->Await(*done, kSecond).ok());
  }
  void Pass() {
    const std::unique_ptr<Event> never = environment_->MakeEvent();
    environment_->Await(*never, kSecond).IgnoreError();
  }

  const std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(1);
  Probe probe_;
  const KernelRegistry kernels_;
  Devices devices_;
  VariableStore variables_;
  DatasetCache datasets_;
  HostIo host_;
  CountingReceiver receiver_;
  std::unique_ptr<CollectiveHub> collectives_;
  compiler::PhysicalGraph graph_;
  plan::NodePlan part_;
  std::unique_ptr<Reactor> control_;
  std::unique_ptr<StreamThreads> threads_;
  std::map<uint16_t, std::unique_ptr<KeepingLink>> links_;
  int ready_ = 0, runs_done_ = 0;
  std::vector<std::string> failures_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, IsReadyRunsAndCloses) {
  ASSERT_TRUE(Load(1, 0, 0).ok());
  EXPECT_FALSE(executor_->is_ready());
  Connect();
  EXPECT_TRUE(executor_->is_ready());
  EXPECT_EQ(ready_, 1);
  Run(0, 3);
  Run(3, 2);
  EXPECT_EQ(runs_done_, 2);
  EXPECT_EQ(receiver_.count(), 5);
  EXPECT_FALSE(executor_->is_running());
  EXPECT_TRUE(failures_.empty());
}

TEST_F(ExecutorTest, AnotherNodesPartIsRefused) {
  EXPECT_THAT(std::string(Load(2, 1, 0).message()),
              HasSubstr("the plan of job 'probe' is node 1's and came to node 0"));
}

TEST_F(ExecutorTest, KernelsLiveUntilItIsDestroyed) {
  int ended = 0;
  probe_.end = [&] { ++ended; };
  ASSERT_TRUE(Load(1, 0, 0).ok());
  Connect();
  Run(0, 1);
  Close();
  EXPECT_EQ(ended, 0);
  executor_.reset();
  EXPECT_EQ(ended, 1);
}

TEST_F(ExecutorTest, AFailingKernelIsToldOnceAndTheRunDoesNotEnd) {
  probe_.run = [] { return absl::DataLossError("a bit flipped"); };
  ASSERT_TRUE(Load(1, 0, 0).ok());
  Connect();
  Run(0, 4);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("a bit flipped")));
  EXPECT_EQ(runs_done_, 0);
  EXPECT_TRUE(executor_->is_running());
}

TEST_F(ExecutorTest, WhatFailsAfterTheCloseIsNoFailure) {
  probe_.run = [] { return absl::DataLossError("a bit flipped"); };
  ASSERT_TRUE(Load(1, 0, 0).ok());
  Connect();
  On([&] {
    executor_->Run(0, 4);
    executor_->Close(absl::CancelledError("over"), [] {});
  });
  Pass();
  EXPECT_TRUE(failures_.empty());
  executor_.reset();
}

// Node 1 of two writes its rows at node 0.
TEST_F(ExecutorTest, IsReadyOnceTheReceiverHasSaidWhereToWrite) {
  ASSERT_TRUE(Load(2, 1, 1).ok());
  Connect();
  EXPECT_FALSE(executor_->is_ready());
  std::optional<RegisterId> reg;
  for (const plan::Task& task : part_.tasks) {
    if (std::holds_alternative<plan::Transfer>(task.work)) reg = task.outputs[0].reg;
  }
  ASSERT_TRUE(reg.has_value());
  EXPECT_THAT(std::string(OnFrame(0, KeyFrame(*reg + 1000)).message()),
              HasSubstr("which was not expected"));
  EXPECT_FALSE(OnFrame(7, KeyFrame(*reg)).ok()) << "another node receives it";
  EXPECT_FALSE(executor_->is_ready());
  EXPECT_TRUE(OnFrame(0, KeyFrame(*reg)).ok());
  EXPECT_TRUE(executor_->is_ready());
  EXPECT_FALSE(OnFrame(0, KeyFrame(*reg)).ok()) << "once";
  EXPECT_EQ(ready_, 1);
}

// Node 0 of two exposes where node 1 writes.
TEST_F(ExecutorTest, WhatIsExposedIsWithdrawnInTheEnd) {
  ASSERT_TRUE(Load(2, 0, 0).ok());
  Connect();
  EXPECT_GT(links_[1]->exposed(), 0);
  EXPECT_EQ(links_[1]->frames().size(), static_cast<size_t>(links_[1]->exposed()));
  Close();
  EXPECT_EQ(links_[1]->exposed(), 0);
  executor_.reset();
}

TEST_F(ExecutorTest, FramesThatNoPeerSendsAreRefused) {
  ASSERT_TRUE(Load(2, 0, 0).ok());
  Connect();
  std::vector<std::byte> frame(kJobFrameHeader + 3);
  frame[0] = static_cast<std::byte>(Channel::kActor);
  EXPECT_FALSE(OnFrame(1, frame).ok()) << "too short";
  frame[0] = static_cast<std::byte>(Channel::kLandingKey);
  EXPECT_FALSE(OnFrame(1, frame).ok()) << "too short";
  Message message;
  message.kind = MessageKind::kReady;
  message.src.node = 3;
  KeepingLink link(1, control_.get());
  RemoteBus bus(kJob, [&](uint16_t) { return &link; });
  message.dst.node = 0;
  ASSERT_TRUE(bus.Send(message).ok());
  EXPECT_THAT(std::string(OnFrame(1, link.frames()[0]).message()), HasSubstr("came from node 1"));
}

}  // namespace
}  // namespace braid
