// Devices with memory and streams of their own, with real threads: whatever a session does on CPUs
// it does on them, and beside them, with the same numbers.

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"
#include "tests/support/device_mix.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

using examples::Parallel;
using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Session> StartMixOrDie(std::vector<int> devices,
                                       DeviceMix mix = DeviceMix::kLagging) {
  SessionOptions options;
  options.node_kinds = NodeKindsOf(mix, devices.size());
  options.devices = std::move(devices);
  options.device_kinds = KindsWithLagging();
  options.seed = 1;
  options.progress = Progress::kOff;
  auto session = Session::Start(std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().message();
  return *std::move(session);
}

void ExpectEqualBits(const TrainingRun& run, const TrainingRun& reference) {
  EXPECT_EQ(run.losses, reference.losses);
  ASSERT_EQ(run.variables.size(), reference.variables.size());
  for (size_t i = 0; i < run.variables.size(); ++i) {
    const Array &a = run.variables[i].second, &b = reference.variables[i].second;
    ASSERT_EQ(a.shape(), b.shape());
    const size_t bytes = static_cast<size_t>(a.num_elements()) * SizeOf(a.dtype());
    EXPECT_EQ(std::memcmp(a.bytes(), b.bytes(), bytes), 0) << run.variables[i].first;
  }
}

void ExpectTheNumbersOfCpus(const std::function<void(Job&, const LayoutCase&)>& record) {
  for (const LayoutCase& layout : LayoutCases()) {
    TrainingOptions options{.layout = layout, .steps = 3, .wants_variables = true};
    const auto train = [&] { return RunTraining(options, [&](Job& job) { record(job, layout); }); };
    const auto reference = train();
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    options.device_kinds = KindsWithLagging();
    for (const DeviceMix mix : {DeviceMix::kLagging, DeviceMix::kMixed}) {
      SCOPED_TRACE(layout.name + (mix == DeviceMix::kMixed ? ", mixed" : ""));
      if (mix == DeviceMix::kMixed && layout.devices.size() < 2) continue;
      options.node_kinds = NodeKindsOf(mix, layout.devices.size());
      const auto run = train();
      ASSERT_TRUE(run.ok()) << run.status().message();
      ExpectEqualBits(*run, *reference);
    }
  }
}

TEST(LaggingTest, MnistHasTheNumbersOfCpus) {
  for (const int micro_batches : {1, 4}) {
    ExpectTheNumbersOfCpus([=](Job& job, const LayoutCase& layout) {
      examples::MnistOptions options = SmallMnist(layout.parallel, DType::kF32);
      options.dropout = 0.2;
      options.micro_batches = micro_batches;
      examples::TrainMnist(job, options);
    });
  }
}

// By a way of their own, on threads and in simulated time: up to the order of sums.
TEST(LaggingTest, NodesCollectWithoutTheirHosts) {
  for (const LayoutCase& layout : LayoutCases()) {
    if (layout.devices.size() < 2) continue;
    SCOPED_TRACE(layout.name);
    TrainingOptions options{.layout = layout, .steps = 3};
    const auto train = [&] {
      return RunTraining(options, [&](Job& job) {
        examples::TrainMnist(job, SmallMnist(layout.parallel, DType::kF64));
      });
    };
    const auto reference = train();
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    options.device_kinds = KindsWithLagging(LaggingFault::kNone, nullptr, MakeLaggingNetwork());
    options.node_kinds = NodeKindsOf(DeviceMix::kNetwork, layout.devices.size());
    const auto run = train();
    ASSERT_TRUE(run.ok()) << run.status().message();
    ASSERT_EQ(run->losses.size(), reference->losses.size());
    for (size_t i = 0; i < run->losses.size(); ++i) {
      EXPECT_NEAR(run->losses[i], reference->losses[i], 1e-9);
    }
    options.simulation_seed = 5;
    const auto simulated = train();
    ASSERT_TRUE(simulated.ok()) << simulated.status().message();
    EXPECT_EQ(simulated->losses, run->losses);
  }
}

// What the compiler does for devices that keep narrow what lies between products, with channels
// last: in simulated time, too. bf16 keeps 8 bits.
TEST(LaggingTest, ImagesTrainNarrow) {
  DeviceKinds::Kind narrow = LaggingKind();
  narrow.keeps_narrow = true;
  DeviceKinds kinds;
  ASSERT_TRUE(kinds.Register("lagging", narrow).ok());
  for (const std::vector<int>& devices : {std::vector<int>{1}, {3}, {2, 1}}) {
    TrainingOptions options{.layout = {.name = "images", .devices = devices}, .steps = 6};
    const auto train = [&] {
      return RunTraining(options, [](Job& job) { TrainSmallImages(job, DType::kF32, 2); });
    };
    const auto wide = train();
    ASSERT_TRUE(wide.ok()) << wide.status().message();
    options.device_kinds = kinds;
    options.node_kinds.assign(devices.size(), "lagging");
    options.precision = DType::kBF16;
    const auto run = train();
    ASSERT_TRUE(run.ok()) << run.status().message();
    ASSERT_EQ(run->losses.size(), wide->losses.size());
    for (size_t i = 0; i < wide->losses.size(); ++i) {
      EXPECT_NEAR(run->losses[i], wide->losses[i], 0.05 * wide->losses[i]);
    }
    EXPECT_NE(run->losses, wide->losses) << "nothing was narrowed";
    options.simulation_seed = 7;
    const auto simulated = train();
    ASSERT_TRUE(simulated.ok()) << simulated.status().message();
    EXPECT_EQ(simulated->losses, run->losses);
  }
}

TEST(LaggingTest, GptHasTheNumbersOfCpus) {
  const std::string text = MakeTextFile();
  ExpectTheNumbersOfCpus([text](Job& job, const LayoutCase& layout) {
    examples::TrainGpt(job, SmallGpt(layout.parallel, DType::kF32, text));
  });
}

TEST(LaggingTest, FeedsComeBackAsFetches) {
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{{1}, {3}, {1, 2}}) {
    const auto session = StartMixOrDie(devices);
    ExpectFeedsComeBackAsFetches(*session);
  }
}

TEST(LaggingTest, VariablesAreSetAndGot) {
  const auto session = StartMixOrDie({1, 2}, DeviceMix::kMixed);
  auto job = session->Compile("job", [](Job& job) {
    job.Fetch("y", Linear(job.Input("x", {6, 4}), 4, {.name = "fc", .weight = sbp::S(1)}));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  std::vector<float> numbers(16);
  for (int i = 0; i < 16; ++i) numbers[i] = static_cast<float>(i);
  for (int round = 0; round < 3; ++round) {
    numbers[0] = static_cast<float>(round);
    const absl::Status set = session->Set("fc.weight", Array::FromVector<float>({4, 4}, numbers));
    ASSERT_TRUE(set.ok()) << set.message();
    const auto got = session->Get("fc.weight");
    ASSERT_TRUE(got.ok()) << got.status().message();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(got->data<float>()[i], numbers[i]);
  }
}

// Parts that devices read from a file, rows and columns.
TEST(LaggingTest, VariablesAreSetFromFiles) {
  const std::string path = TestFolder() + "/lagging_numbers.bin";
  std::vector<float> numbers(12 * 10);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  for (const DeviceMix mix : {DeviceMix::kLagging, DeviceMix::kMixed}) {
    for (const int axis : {0, 1}) {
      const auto session = StartMixOrDie({1, 2}, mix);
      const auto job = session->Compile("job", [&](Job& job) {
        job.Fetch("x",
                  Variable(job.graph(), {.name = "x", .shape = {12, 10}, .sbp = sbp::S(axis)}));
      });
      ASSERT_TRUE(job.ok()) << job.status().message();
      ASSERT_EQ(session->SetFromFiles({{"x", {.path = path}}}), absl::OkStatus());
      const absl::StatusOr<Array> x = session->Get("x");
      ASSERT_TRUE(x.ok()) << x.status().message();
      EXPECT_TRUE(std::ranges::equal(x->data<float>(), numbers)) << axis;
    }
  }
}

TEST(LaggingTest, ACheckpointContinuesOnDevicesOfAnotherKind) {
  const std::string folder = TestFolder() + "/lagging_checkpoint";
  const auto record = [](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kData, DType::kF64));
  };
  const auto saved = StartMixOrDie({2, 1});
  auto job = saved->Compile("train", record);
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_TRUE(job->Run({.steps = 3}).ok());
  const absl::Status save = saved->Save(folder);
  ASSERT_TRUE(save.ok()) << save.message();
  const auto reference = job->Run({.steps = 3});
  ASSERT_TRUE(reference.ok());
  ASSERT_TRUE(saved->FinishSave().ok());
  const auto resume = [&](std::unique_ptr<Session> session) {
    auto resumed = session->Compile("train", record);
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    const absl::Status load = session->Load(folder);
    ASSERT_TRUE(load.ok()) << load.message();
    const auto result = resumed->Run({.steps = 3});
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->Scalars("loss"), reference->Scalars("loss"));
  };
  resume(StartMixOrDie({2, 1}));
  resume(StartMixOrDie({2, 1}, DeviceMix::kMixed));
  SessionOptions cpus{.devices = {2, 1}, .seed = 1, .progress = Progress::kOff};
  resume(*Session::Start(std::move(cpus)));
}

TEST(LaggingTest, WhatFailsLateIsSaidInTheCpusWords) {
  const auto session = StartMixOrDie({1, 2});
  auto job = session->Compile("job", [](Job& job) {
    const Tensor table = Variable(job.graph(), {.name = "table", .shape = {4, 2}});
    job.Fetch("y", Mean(Embedding(table, job.Input("i", {6}, DType::kI32))));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const Array bad = Array::FromVector<int32_t>({6}, {0, 1, 2, 3, 9, 0});
  const auto result = job->Run({.feeds = {{"i", bad}}});
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("gather"), HasSubstr("9"), HasSubstr("lagging_test.cc:")));
  EXPECT_EQ(job->Run({.feeds = {{"i", bad}}}).status().message(), result.status().message());
}

TEST(LaggingTest, AKindThatNobodyKnowsIsRefused) {
  SessionOptions options{.devices = {1}, .node_kinds = {"abacus"}, .progress = Progress::kOff};
  const auto session = Session::Start(std::move(options));
  EXPECT_EQ(session.status().message(),
            "there are no 'abacus' devices here; this program has cpu, cuda");
}

}  // namespace
}  // namespace braid
