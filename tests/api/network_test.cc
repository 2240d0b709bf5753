// A session of real nodes over TCP on loopback: the master here, the others as threads that serve.
#include "api/network.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/braid.h"
#include "comm/network/network.h"
#include "examples/mnist_model.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 1000;

// Nodes of one CPU device each, as a launcher's environment would describe them.
class NetworkTest : public ::testing::Test {
 protected:
  void StartNodes(int nodes) {
    auto listener = ListenOn(*SocketAddress::Parse("127.0.0.1:0"));
    ASSERT_TRUE(listener.ok()) << listener.status();
    network_.cluster.nodes.assign(nodes, {.devices = DeviceSpec()});
    network_.cluster.nodes[0].host = "127.0.0.1";
    network_.cluster.nodes[0].port = listener->LocalAddress()->port();
    network_.cluster.origin = "the test";
    network_.secret = "secret";
    statuses_.resize(nodes);
    for (int node = 1; node < nodes; ++node) {
      NetworkOptions network = network_;
      network.cluster.rank = node;
      servers_.emplace_back([this, network, node] {
        statuses_[node] =
            ServeNode(network, {.kernels = &kernels_, .interruption = &interruptions_[node]});
      });
    }
    network_.control_descriptor = fcntl(listener->descriptor(), F_DUPFD_CLOEXEC, 0);
    SessionOptions options;
    options.network = network_;
    options.progress = Progress::kOff;
    auto session = Session::Start(std::move(options));
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  // Ends the session; what each other node said of it.
  std::vector<absl::Status> End() {
    session_.reset();
    for (std::thread& server : servers_) server.join();
    servers_.clear();
    return {statuses_.begin() + 1, statuses_.end()};
  }

  ~NetworkTest() override { End(); }

  // Trains on every node but the master.
  absl::StatusOr<CompiledJob> CompileOnWorkers(bool fetches_loss) {
    return session_->Compile("train", [&](Job& job) {
      const Placement& all = job.devices();
      job.On(all.Slice(1, all.size() - 1), [&] {
        auto [image, label] = job.Read(DrawnDigits({.count = 256}), {.batch = 16});
        const Tensor x = Reshape(image, {16, 784});
        const Tensor hidden = Relu(Linear(x, 32, {.name = "hidden"}));
        const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(hidden, 10, {.name = "out"}), label));
        job.Minimize(loss, Adam{.lr = 1e-3});
        if (fetches_loss) job.Fetch("loss", loss);
      });
    });
  }

  KernelRegistry kernels_ = CpuKernels();
  Interruption interruptions_[4];
  NetworkOptions network_;
  std::unique_ptr<Session> session_;
  std::vector<std::thread> servers_;
  std::vector<absl::Status> statuses_;
};

// Promise 5: while a job runs, a step needs no message to or from the master.
TEST_F(NetworkTest, AStepNeedsNothingOfTheMaster) {
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/false);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(job->Run({.steps = 10}).ok());
  const std::vector<NodeTraffic> before = session_->Traffic();
  ASSERT_EQ(before.size(), 2u);
  ASSERT_TRUE(job->Run({.steps = kSteps}).ok());
  const std::vector<NodeTraffic> after = session_->Traffic();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].node, static_cast<int>(i) + 1);
    EXPECT_EQ(after[i].messages_sent - before[i].messages_sent, 1u) << "the credit of the Run";
    EXPECT_EQ(after[i].messages_received - before[i].messages_received, 1u) << "its end";
    EXPECT_EQ(after[i].link, "") << "no edge, no link";
    EXPECT_EQ(after[i].bytes_sent + after[i].bytes_received, 0u);
  }
  EXPECT_THAT(End(), Each(absl::OkStatus()));
}

TEST_F(NetworkTest, WhatIsFetchedIsAllThatTheMasterGets) {
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::vector<NodeTraffic> before = session_->Traffic();
  const auto result = job->Run({.steps = kSteps});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->Scalars("loss").size(), static_cast<size_t>(kSteps));
  uint64_t received = 0, messages = 0;
  const std::vector<NodeTraffic> after = session_->Traffic();
  for (size_t i = 0; i < after.size(); ++i) {
    received += after[i].bytes_received - before[i].bytes_received;
    messages += after[i].messages_received - before[i].messages_received;
    EXPECT_EQ(after[i].bytes_sent, before[i].bytes_sent);
  }
  // A loss is four bytes, or an addend of it from each node.
  EXPECT_GE(received, kSteps * sizeof(float));
  EXPECT_LE(received, 2 * kSteps * sizeof(float));
  EXPECT_EQ(messages, 2u) << "each node's end of the Run";
}

TEST_F(NetworkTest, AFailureOfTheProgramEndsTheNodesWithItsWords) {
  StartNodes(2);
  EXPECT_EQ(session_->Close(absl::NotFoundError("the program found no bread")), absl::OkStatus());
  EXPECT_THAT(End(), Each(absl::NotFoundError("the program found no bread")));
}

TEST_F(NetworkTest, AnInterruptedNodeEndsTheRunWithItsName) {
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  std::thread interrupting(
      [this] { interruptions_[2].Raise(absl::CancelledError("interrupted by SIGTERM")); });
  const auto result = job->Run({.steps = 100'000'000});
  interrupting.join();
  const absl::Status expected = absl::CancelledError("node 2: interrupted by SIGTERM");
  EXPECT_EQ(result.status(), expected);
  EXPECT_THAT(End(), Each(expected));
}

// The operator is recorded here; its kernel runs in the processes of the others.
TEST_F(NetworkTest, AKernelThatANodeDoesNotHaveIsNamed) {
  StartNodes(2);
  ASSERT_TRUE(session_->operators()
                  .Register(OpDef("cube")
                                .Rule("...->...")
                                .NoGradient()
                                .Sample({.inputs = {{DType::kF32, {3, 4}}}}))
                  .ok());
  const auto job = session_->Compile("cubes", [](Job& job) {
    job.On(job.devices().node(1), [&] { job.Fetch("y", Apply("cube", {job.Input("x", {3})})); });
  });
  EXPECT_THAT(std::string(job.status().message()), AllOf(HasSubstr("node 1"), HasSubstr("cube")));
}

}  // namespace
}  // namespace braid
