// A session of real nodes over TCP on loopback: the master here, the others as threads that serve.
#include "api/network.h"

#include <braid/braid.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/network/network.h"
#include "examples/mnist_model.h"
#include "runtime/files/checkpoint_part.h"
#include "tests/api/training_case.h"
#include "tests/support/one_processor.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 1000;

// Until `is_so`, or for 10 s.
void Await(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!is_so() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// What is posted to it waits until it is let go.
class HeldReactor final : public Reactor {
 public:
  explicit HeldReactor(std::unique_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}

  void Hold() {
    std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  bool holds_any() {
    std::lock_guard lock(mutex_);
    return !held_.empty();
  }
  void LetGo() {
    std::lock_guard lock(mutex_);
    is_held_ = false;
    for (absl::AnyInvocable<void()>& fn : held_) reactor_->Post(std::move(fn));
    held_.clear();
  }

  void Post(absl::AnyInvocable<void()> fn) override {
    std::lock_guard lock(mutex_);
    if (!is_held_) return reactor_->Post(std::move(fn));
    held_.push_back(std::move(fn));
  }
  Nanoseconds Now() const override { return reactor_->Now(); }
  void Wake() override { reactor_->Wake(); }
  void SetPollable(Pollable* pollable) override { reactor_->SetPollable(pollable); }
  void RemovePollable(Pollable* pollable) override { reactor_->RemovePollable(pollable); }
  TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) override {
    return reactor_->RunAfter(delay, std::move(fn));
  }
  void CancelTimer(TimerId id) override { reactor_->CancelTimer(id); }
  absl::Status Watch(int descriptor, Readiness interest,
                     std::function<void(Readiness)> fn) override {
    return reactor_->Watch(descriptor, interest, std::move(fn));
  }
  absl::Status SetInterest(int descriptor, Readiness interest) override {
    return reactor_->SetInterest(descriptor, interest);
  }
  void Unwatch(int descriptor) override { reactor_->Unwatch(descriptor); }
  bool InThread() const override { return reactor_->InThread(); }

 private:
  const std::unique_ptr<Reactor> reactor_;
  std::mutex mutex_;
  bool is_held_ = true;
  std::vector<absl::AnyInvocable<void()>> held_;
};

// The real one, but that a saver waits until it is let go, from the first save on.
class SlowSaver : public Environment {
 public:
  explicit SlowSaver(std::string_view name) : name_(name) {}

  bool holds_any() { return saver_.load() != nullptr && saver_.load()->holds_any(); }
  void Hold() { saver_.load()->Hold(); }
  void LetGo() { saver_.load()->LetGo(); }

  std::unique_ptr<Reactor> StartReactor(std::string_view name) override {
    std::unique_ptr<Reactor> reactor = real_->StartReactor(name);
    if (name != name_) return reactor;
    auto held = std::make_unique<HeldReactor>(std::move(reactor));
    saver_ = held.get();
    return held;
  }
  Nanoseconds Now() const override { return real_->Now(); }
  std::unique_ptr<Event> MakeEvent() override { return real_->MakeEvent(); }
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    return real_->Await(event, timeout);
  }
  bool is_simulated() const override { return false; }

 protected:
  bool has_saver() const { return saver_.load() != nullptr; }

 private:
  const std::string_view name_;
  const std::unique_ptr<Environment> real_ = MakeRealEnvironment();
  std::atomic<HeldReactor*> saver_{nullptr};
};

// The disk of node 1 takes until it is let go.
class SlowDisk final : public SlowSaver {
 public:
  SlowDisk() : SlowSaver("saver 1") {}
};

// The master's saver waits until it is let go, and so does the program's thread, once the saver has
// something to do.
class LateProgram final : public SlowSaver {
 public:
  LateProgram() : SlowSaver("saver") {}

  void LetProgramGo() { is_program_free_ = true; }

  // Each time it waits the thread is so late that the parts of a save may be there by then.
  absl::Status Await(Event& event, Nanoseconds timeout) override {
    const absl::Status status = SlowSaver::Await(event, timeout);
    const auto late = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!is_program_free_ && has_saver() &&
           (holds_any() || std::chrono::steady_clock::now() < late)) {
      std::this_thread::yield();
    }
    return status;
  }

 private:
  std::atomic<bool> is_program_free_{false};
};

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
    // Which is at the ends of Runs, and would be among what tests count.
    options.check_replicas = 0;
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

// As in a container or under a batch system, which leave a process some of the machine's only.
TEST(DevicesHereTest, AutoIsADeviceForEachProcessorThatMayBeUsed) {
  std::thread([] {
    KeepToOneProcessor();
    EXPECT_EQ(DevicesHere({.type = DeviceSpec::kAuto, .count = 0}).count, 1);
  }).join();
}

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

TEST_F(NetworkTest, NoStepWaitsForTheDisk) {
  SlowDisk disk;
  network_.environment = &disk;
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string folder = TestFolder() + "/slow_disk";
  fs::remove_all(folder);
  ASSERT_TRUE(job->Run({.steps = 3}).ok());
  ASSERT_EQ(session_->Save(folder), absl::OkStatus());
  const auto next = job->Run({.steps = 2});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(fs::exists(folder + "/latest"));
  std::thread waiting([&] { EXPECT_EQ(session_->FinishSave(), absl::OkStatus()); });
  std::string status;
  Await([&] {
    status = session_->Describe();
    return status.find("on the disk") != std::string::npos;
  });
  EXPECT_THAT(status, AllOf(HasSubstr("saving to '" + folder + "'"),
                            HasSubstr("waiting until all is on the disk of node 1")));
  EXPECT_FALSE(fs::exists(folder + "/latest"));
  disk.LetGo();
  waiting.join();
  // It is what was there when it was saved.
  EXPECT_TRUE(fs::exists(folder + "/step-3"));
  ASSERT_EQ(session_->Load(folder), absl::OkStatus());
  EXPECT_EQ(job->step(), 3);
  const auto again = job->Run({.steps = 2});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Scalars("loss"), next->Scalars("loss"));
  EXPECT_THAT(End(), Each(absl::OkStatus()));
}

TEST_F(NetworkTest, NodesThatHoldTheSameShareASave) {
  SlowDisk disk;
  network_.environment = &disk;
  StartNodes(3);
  auto job = session_->Compile("table", [](Job& job) {
    const VariableOptions table{.name = "table", .shape = {8 << 20}, .sbp = sbp::B};
    job.On(job.devices().Slice(1, 2),
           [&] { job.Fetch("mean", Mean(Variable(job.graph(), table))); });
  });
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string folder = TestFolder() + "/shared_save";
  fs::remove_all(folder);
  ASSERT_EQ(session_->Save(folder), absl::OkStatus());
  const std::string path = folder + "/step-0.tmp/part-2";
  absl::StatusOr<std::string> text;
  Await([&] {
    text = ReadWholeFile(path, 1 << 20);
    return text.ok() && text->ends_with("end\n");
  });
  ASSERT_TRUE(text.ok()) << text.status();
  const auto files = ParseStretches(path, *text);
  ASSERT_TRUE(files.ok()) << files.status();
  int64_t bytes = 0;
  for (const auto& [name, checksums] : *files) {
    for (const BlockChecksums::Stretch& stretch : checksums.stretches()) bytes += stretch.bytes;
  }
  EXPECT_EQ(bytes, 16 << 20) << "of 32 MiB";
  disk.LetGo();
  EXPECT_EQ(session_->FinishSave(), absl::OkStatus());
  EXPECT_EQ(session_->Load(folder), absl::OkStatus());
  EXPECT_THAT(End(), Each(absl::OkStatus()));
}

// All processes say the same, the master too, whose own the failure is not.
TEST_F(NetworkTest, ANodeThatFailsWhileASaveEndsIsSaidInItsWords) {
  SlowDisk disk;
  network_.environment = &disk;
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string folder = TestFolder() + "/failed_save";
  fs::remove_all(folder);
  ASSERT_EQ(session_->Save(folder), absl::OkStatus());
  std::thread interrupting(
      [this] { interruptions_[2].Raise(absl::CancelledError("interrupted by SIGTERM")); });
  const absl::Status expected = absl::CancelledError("node 2: interrupted by SIGTERM");
  EXPECT_EQ(session_->FinishSave(), expected);
  interrupting.join();
  EXPECT_THAT(End(), Each(expected));
}

// As when the master's process is stopped meanwhile: once it goes on, it hears of the parts and of
// the failure at once.
TEST_F(NetworkTest, ASaveOfWhichAllIsWrittenIsWholeThoughTheSessionFails) {
  LateProgram late;
  network_.environment = &late;
  StartNodes(3);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string folder = TestFolder() + "/late_save";
  fs::remove_all(folder);
  std::thread failing([&] {
    Await([&] { return late.holds_any(); });
    interruptions_[2].Raise(absl::CancelledError("interrupted by SIGTERM"));
    // How long decides which order is tried: the program hears of it, and then the saver begins.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    late.LetProgramGo();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    late.LetGo();
  });
  const absl::Status expected = absl::CancelledError("node 2: interrupted by SIGTERM");
  EXPECT_EQ(session_->Save(folder), expected);
  failing.join();
  EXPECT_THAT(End(), Each(expected));
  EXPECT_TRUE(fs::exists(folder + "/step-0"));
}

// The older one is what is left.
TEST_F(NetworkTest, ASaveThatTheDiskRefusesIsSaidOnce) {
  SlowDisk disk;
  network_.environment = &disk;
  StartNodes(2);
  auto job = CompileOnWorkers(/*fetches_loss=*/true);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string folder = TestFolder() + "/refusing_disk";
  fs::remove_all(folder);
  for (const bool is_refused : {false, true}) {
    ASSERT_TRUE(job->Run().ok());
    if (is_refused) disk.Hold();
    ASSERT_EQ(session_->Save(folder), absl::OkStatus());
    if (is_refused) fs::remove_all(folder + "/step-2.tmp");
    disk.LetGo();
    if (!is_refused) {
      ASSERT_EQ(session_->FinishSave(), absl::OkStatus());
    }
  }
  const std::string error(session_->FinishSave().message());
  EXPECT_THAT(error, AllOf(HasSubstr("saving to '" + folder + "'"), HasSubstr("node 1"),
                           HasSubstr("step-2.tmp/part-1"), HasSubstr("No such file")));
  EXPECT_EQ(session_->FinishSave(), absl::OkStatus());
  ASSERT_EQ(session_->Load(folder), absl::OkStatus());
  EXPECT_EQ(job->step(), 1);
  ASSERT_TRUE(job->Run().ok());
  EXPECT_EQ(session_->Save(folder), absl::OkStatus());
  EXPECT_THAT(End(), Each(absl::OkStatus()));
  EXPECT_TRUE(fs::exists(folder + "/step-2"));
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
