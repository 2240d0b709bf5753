// Sessions as users see them: feeds, fetches, variables, checkpoints, and what mistakes say.

#include "api/session.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;
using testing::AllOf;
using testing::HasSubstr;

std::string CompileError(const std::function<void(Job&)>& record, std::vector<int> devices = {2}) {
  const auto session = StartOrDie({.devices = std::move(devices)});
  const auto job = session->Compile("job", record);
  return job.ok() ? "no error" : std::string(job.status().message());
}

std::string EmptyFolder(const std::string& name) {
  const std::string path = TestFolder() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

// ---- what works ---------------------------------------------------------------------------------

TEST(SessionTest, FeedsComeBackAsFetches) {
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{{1}, {3}, {1, 2}}) {
    const auto session = StartOrDie({.devices = devices});
    auto job = session->Compile("double", [](Job& job) {
      job.Fetch("y", job.Input("x", {5, 2}) * 2.0);
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    const Array x = Array::FromVector<float>({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    const auto result = job->Run({.feeds = {{"x", x}}});
    ASSERT_TRUE(result.ok()) << result.status().message();
    const auto y = result->Last("y").data<float>();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(y[i], 2 * i);
  }
}

TEST(SessionTest, AUserWritesAnOperatorOfTheirOwn) {
  const auto session = StartOrDie({.devices = {2}});
  ASSERT_TRUE(session->operators()
                  .Register(OpDef("cube")
                                .Rule("...->...")
                                .NoGradient()
                                .Sample({.inputs = {{DType::kF32, {3, 4}}}}))
                  .ok());
  class Cube final : public Kernel {
   public:
    explicit Cube(int64_t n) : n_(n) {}
    absl::Status Run(const KernelRun& run) override {
      const auto* x = static_cast<const float*>(run.inputs[0]);
      auto* y = static_cast<float*>(run.outputs[0]);
      for (int64_t i = 0; i < n_; ++i) y[i] = x[i] * x[i] * x[i];
      return absl::OkStatus();
    }

   private:
    int64_t n_;
  };
  ASSERT_TRUE(session->kernels()
                  .Register("cube",
                            [](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                              return std::make_unique<Cube>(spec.outputs[0].num_elements());
                            })
                  .ok());
  auto job = session->Compile("cube", [](Job& job) {
    job.Fetch("y", Apply("cube", {job.Input("x", {3, 1})}));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const auto result = job->Run({.feeds = {{"x", Array::FromVector<float>({3, 1}, {1, 2, 3})}}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->Last("y").data<float>()[2], 27);
}

TEST(SessionTest, JobsShareVariablesByName) {
  const auto session = StartOrDie({.devices = {2}});
  examples::MnistOptions options = SmallMnist(Parallel::kModel, DType::kF32);
  auto train = session->Compile("train", [&](Job& job) { examples::TrainMnist(job, options); });
  ASSERT_TRUE(train.ok()) << train.status().message();
  auto evaluate =
      session->Compile("evaluate", [&](Job& job) { examples::EvaluateMnist(job, options); });
  ASSERT_TRUE(evaluate.ok()) << evaluate.status().message();
  const auto before = evaluate->Run({.steps = 1});
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_TRUE(train->Run({.steps = 100}).ok());
  const auto after = evaluate->Run({.steps = 1});
  ASSERT_TRUE(after.ok());
  EXPECT_GT(after->Mean("accuracy"), before->Mean("accuracy") + 0.2);
}

size_t EntriesOf(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// Each had a thread for each device and stream.
TEST(SessionTest, AJobMoreTakesNoThreadAndNoDescriptor) {
  const auto session = StartOrDie({.devices = {2, 2}});
  std::vector<CompiledJob> jobs;
  const auto add = [&] {
    auto job = session->Compile(absl::StrFormat("job %d", jobs.size()), [](Job& job) {
      const Tensor v = Variable(job.graph(), {.name = "v", .shape = {8}});
      Assign(v, v + 1.0);
      job.Fetch("mean", Mean(v));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    jobs.push_back(*job);
  };
  const auto run_all = [&] {
    for (CompiledJob& job : jobs) {
      const auto result = job.Run({.steps = 2});
      ASSERT_TRUE(result.ok()) << result.status().message();
    }
  };
  add();
  run_all();
  const size_t threads = EntriesOf("/proc/self/task"), descriptors = EntriesOf("/proc/self/fd");
  while (jobs.size() < 20) add();
  run_all();
  run_all();
  // One of them ends a job.
  jobs.front().Unload();
  EXPECT_EQ(session->Get("v")->data<float>()[7], 2 + 2 * 2 * 20);
  EXPECT_LE(EntriesOf("/proc/self/task"), threads + 2) << "what ends jobs, for each node";
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
}

TEST(SessionTest, VariablesAreSetAndGotUnderAnyLayout) {
  for (const LayoutCase& layout : LayoutCases()) {
    SCOPED_TRACE(layout.name);
    const auto session = StartOrDie({.devices = layout.devices});
    auto job = session->Compile("train", [&](Job& job) {
      examples::TrainMnist(job, SmallMnist(layout.parallel, DType::kF32));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    Array value(DType::kF32, {784, 30});
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      value.mutable_data<float>()[i] = static_cast<float>(i);
    }
    const absl::Status set = session->Set("fc1.weight", value);
    ASSERT_TRUE(set.ok()) << set.message();
    const auto got = session->Get("fc1.weight");
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(std::memcmp(got->bytes(), value.bytes(), value.num_bytes()), 0);
  }
}

TEST(SessionTest, ACheckpointOfOneLayoutContinuesUnderAnother) {
  const std::string folder = EmptyFolder("checkpoint");
  const auto record = [](Parallel parallel) {
    return [parallel](Job& job) {
      examples::MnistOptions options = SmallMnist(parallel, DType::kF64);
      options.dropout = 0.2;
      examples::TrainMnist(job, options);
    };
  };
  const auto saved = StartOrDie({.devices = {2, 2}, .seed = 1});
  auto job = saved->Compile("train", record(Parallel::kHybrid));
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_TRUE(job->Run({.steps = 7}).ok());
  const absl::Status save = saved->Save(folder);
  ASSERT_TRUE(save.ok()) << save.message();
  const auto reference = job->Run({.steps = 5});
  ASSERT_TRUE(reference.ok());
  ASSERT_TRUE(saved->FinishSave().ok());
  for (const auto& [devices, parallel] : std::vector<std::pair<std::vector<int>, Parallel>>{
           {{1}, Parallel::kData}, {{3}, Parallel::kModel}, {{1, 2}, Parallel::kPipeline}}) {
    const auto session = StartOrDie({.devices = devices, .seed = 1});
    auto resumed = session->Compile("train", record(parallel));
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    const absl::Status load = session->Load(folder);
    ASSERT_TRUE(load.ok()) << load.message();
    EXPECT_EQ(resumed->step(), 7);
    const auto result = resumed->Run({.steps = 5});
    ASSERT_TRUE(result.ok()) << result.status().message();
    for (int i = 0; i < 5; ++i) {
      EXPECT_NEAR(result->Scalars("loss")[i], reference->Scalars("loss")[i], 1e-9);
    }
  }
}

// It keeps a copy of its operand, and says so.
TEST(SessionTest, AUsersKernelIsNotMadeForItsMemoryToBeKnown) {
  class Keeping final : public Kernel {
   public:
    explicit Keeping(int64_t n) : kept_(n) {}
    absl::Status Run(const KernelRun& run) override {
      const auto* x = static_cast<const float*>(run.inputs[0]);
      std::copy_n(x, kept_.size(), kept_.begin());
      std::copy_n(x, kept_.size(), static_cast<float*>(run.outputs[0]));
      return absl::OkStatus();
    }

   private:
    std::vector<float> kept_;
  };
  for (const bool dry_run : {true, false}) {
    const auto session = StartOrDie({.devices = {1, 1}, .dry_run = dry_run});
    ASSERT_TRUE(session->operators()
                    .Register(OpDef("keep")
                                  .Rule("...->...")
                                  .NoGradient()
                                  .Sample({.inputs = {{DType::kF32, {3, 4}}}}))
                    .ok());
    std::atomic<int> made = 0;
    const auto make = [&made](const KernelSpec& spec) {
      ++made;
      return std::make_unique<Keeping>(spec.inputs[0].num_elements());
    };
    const auto memory = [](const KernelSpec& spec) {
      return KernelMemory{.own = spec.inputs[0].num_elements() * int64_t{sizeof(float)}};
    };
    ASSERT_TRUE(session->kernels().Register("keep", {make, memory}).ok());
    testing::internal::CaptureStdout();
    auto job = session->Compile("keep", [](Job& job) {
      job.Fetch("y", Apply("keep", {ToSbp(job.Input("x", {6, 5}), sbp::S(0))}));
    });
    testing::internal::GetCapturedStdout();
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_EQ(made, dry_run ? 0 : 2);
    ASSERT_EQ(job->memory().size(), 2u);
    for (const DeviceMemory& device : job->memory()) EXPECT_EQ(device.kernels, 15 * 4);
  }
}

TEST(SessionTest, DryRunPlansWithoutRunning) {
  const auto session = StartOrDie({.devices = {8, 8}, .dry_run = true});
  testing::internal::CaptureStdout();
  auto job = session->Compile("train", [](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kHybrid, DType::kF32));
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_THAT(printed, AllOf(HasSubstr("16 devices of 2 nodes"), HasSubstr("node 1 cpu 2 to "),
                             HasSubstr("node 0 sends node 1 ")));
  // Of 784 inputs and 10 outputs; the sums of the columns.
  EXPECT_THAT(printed, testing::ContainsRegex("layer +parameters +activations +operations\n"));
  EXPECT_THAT(printed, testing::ContainsRegex("  fc1 +[0-9]+ +[0-9.]+ [KM]iB +[0-9.]+ MFLOP\n"));
  EXPECT_THAT(printed, testing::ContainsRegex("  all +[0-9]+ "));
  EXPECT_TRUE(absl::IsCancelled(job->Run().status()));
}

// In a step, that is, whatever parts it is computed in.
TEST(SessionTest, MicroBatchesDoNotChangeWhatLayersCost) {
  const auto fc1_of = [](int micro_batches) {
    const auto session = StartOrDie({.devices = {2}, .dry_run = true});
    testing::internal::CaptureStdout();
    const auto job = session->Compile("train", [&](Job& job) {
      examples::MnistOptions options = SmallMnist(Parallel::kData, DType::kF32);
      options.micro_batches = micro_batches;
      examples::TrainMnist(job, options);
    });
    const std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(job.ok()) << job.status().message();
    std::smatch costs;
    const bool is_there = std::regex_search(
        printed, costs, std::regex("  fc1 +([0-9]+) +([0-9.]+) ([KM])iB +([0-9.]+) MFLOP\n"));
    EXPECT_TRUE(is_there) << printed;
    return std::make_pair(std::stod(costs[2]) * (costs[3] == "M" ? 1024 : 1), std::stod(costs[4]));
  };
  const auto [kib, mflop] = fc1_of(1);
  for (const int micro_batches : {2, 6}) {
    const auto [cut_kib, cut_mflop] = fc1_of(micro_batches);
    // Each act gives an addend of the weight's gradient, and they are added up.
    EXPECT_GE(cut_kib, kib) << micro_batches;
    EXPECT_GE(cut_mflop, mflop) << micro_batches;
    EXPECT_LE(cut_mflop, 1.1 * mflop) << micro_batches;
  }
}

// What was measured changes estimates only, unless the user says otherwise.
TEST(SessionTest, MeasuredRatesAreForEstimates) {
  // Nobody would sum over such a network by twice around a ring, and no device is as slow.
  compiler::Machine slow{.is_known = true, .origin = "measured"};
  slow.devices["cpu"].flops[DType::kF32] = 1e6;
  for (compiler::LinkRates& link : slow.links) link.latency = 1;
  const auto plan = [&](SessionOptions options) {
    options.devices = {1, 1, 1, 1};
    options.dry_run = true;
    const auto session = StartOrDie(std::move(options));
    testing::internal::CaptureStdout();
    const auto job = session->Compile("train", [](Job& job) {
      examples::TrainMnist(job, SmallMnist(Parallel::kModel, DType::kF32));
    });
    testing::internal::GetCapturedStdout();
    EXPECT_TRUE(job.ok()) << job.status().message();
    return std::pair(job->summary(), job->Explain());
  };
  // The groups of tasks.
  const auto groups = [](const std::string& explanation) {
    return explanation.substr(explanation.find("# Task groups"));
  };
  const auto [summary, explanation] = plan({});
  EXPECT_THAT(summary, HasSubstr("(rates: default)"));
  const auto [measured_summary, measured_explanation] = plan({.measured = slow});
  EXPECT_THAT(measured_summary, HasSubstr("(rates: measured)"));
  EXPECT_NE(measured_explanation, explanation);
  EXPECT_EQ(groups(measured_explanation), groups(explanation));
  const auto [chosen_summary, chosen_explanation] =
      plan({.measured = slow, .decides_by_measured = true});
  EXPECT_NE(groups(chosen_explanation), groups(explanation));
  slow.origin = "rates.txt";
  const auto [given_summary, given_explanation] = plan({.machine = slow});
  EXPECT_THAT(given_summary, HasSubstr("(rates: rates.txt)"));
  EXPECT_EQ(groups(given_explanation), groups(chosen_explanation));
}

// ---- what mistakes say --------------------------------------------------------------------------

TEST(SessionErrorTest, ShapeMismatchNamesOpLineAndBothShapes) {
  EXPECT_THAT(CompileError([](Job& job) {
                const Tensor a = job.Input("a", {64, 784});
                const Tensor b = job.Input("b", {512, 10});
                job.Fetch("c", MatMul(a, b));
              }),
              AllOf(HasSubstr("matmul"), HasSubstr("[64, 784]"), HasSubstr("[512, 10]"),
                    HasSubstr("session_test.cc:")));
}

TEST(SessionErrorTest, ImpossibleHintListsTheLegalSignatures) {
  const std::string error = CompileError([](Job& job) {
    const Tensor x = job.Input("x", {8, 4});
    job.Fetch("y", Linear(x, 6, {.name = "fc", .weight = sbp::P}));
  });
  EXPECT_THAT(error, AllOf(HasSubstr("fc.weight"), HasSubstr("P"), HasSubstr("S(1)"),
                           HasSubstr("session_test.cc:")));
}

TEST(SessionErrorTest, AHintOfTwoDimensionsNeedsEqualNodes) {
  EXPECT_THAT(CompileError(
                  [](Job& job) {
                    const Tensor x = job.Input("x", {8, 4});
                    job.Fetch("y", Linear(x, 6, {.weight = NdSbp{sbp::B, sbp::S(1)}}));
                  },
                  {1, 2}),
              AllOf(HasSubstr("session_test.cc:"), HasSubstr("1"), HasSubstr("2")));
}

TEST(SessionErrorTest, WrongFeeds) {
  const auto session = StartOrDie({});
  auto job = session->Compile("job", [](Job& job) { job.Fetch("y", job.Input("x", {2, 3})); });
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_THAT(
      std::string(job->Run({.feeds = {{"x", Array(DType::kF32, {3, 2})}}}).status().message()),
      AllOf(HasSubstr("'x'"), HasSubstr("f32[2, 3]"), HasSubstr("f32[3, 2]")));
  EXPECT_THAT(
      std::string(job->Run({.feeds = {{"z", Array(DType::kF32, {2, 3})}}}).status().message()),
      AllOf(HasSubstr("no input 'z'"), HasSubstr("x")));
  // Nothing was fed yet, and a session lives on after a wrong feed.
  EXPECT_THAT(std::string(job->Run().status().message()), HasSubstr("was not fed"));
  EXPECT_TRUE(job->Run({.feeds = {{"x", Array(DType::kF32, {2, 3})}}}).ok());
}

TEST(SessionErrorTest, LoadNamesAVariableThatIsNotThere) {
  const std::string folder = EmptyFolder("other_names");
  {
    const auto session = StartOrDie({});
    auto job = session->Compile("a", [](Job& job) {
      job.Fetch("y", Variable(job.graph(), {.name = "w.old", .shape = {4}}));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    ASSERT_TRUE(session->Save(folder).ok());
  }
  const auto session = StartOrDie({});
  auto job = session->Compile("a", [](Job& job) {
    job.Fetch("y", Variable(job.graph(), {.name = "w.new", .shape = {4}}));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_THAT(std::string(session->Load(folder).message()),
              AllOf(HasSubstr("w.new"), HasSubstr("w.old")));
  EXPECT_THAT(std::string(session->Load(folder + "/nowhere").message()), HasSubstr("nowhere"));
}

TEST(SessionErrorTest, MissingAndDamagedData) {
  const auto read = [](const std::string& prefix) {
    return [prefix](Job& job) {
      auto [image, label] = job.Read(Mnist(prefix), {.batch = 2});
      job.Fetch("y", Mean(image));
    };
  };
  EXPECT_THAT(CompileError(read("/nowhere/t10k")),
              AllOf(HasSubstr("/nowhere/t10k-images-idx3-ubyte"), HasSubstr("session_test.cc:")));
  const std::string folder = EmptyFolder("damaged");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/t10k-images-idx3-ubyte") << "garbage";
  EXPECT_THAT(CompileError(read(folder + "/t10k")), HasSubstr(folder + "/t10k-images-idx3-ubyte"));
}

TEST(SessionErrorTest, OutOfMemoryByPlanNamesTheLargest) {
  const auto session = StartOrDie({.device_memory_bytes = 1 << 20});
  const auto job = session->Compile("big", [](Job& job) {
    const Tensor x = job.Input("x", {1024, 1024});
    job.Fetch("y", Mean(MatMul(x, x)));
  });
  ASSERT_FALSE(job.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(job.status()));
  EXPECT_THAT(std::string(job.status().message()),
              AllOf(HasSubstr("1048576"), HasSubstr("session_test.cc:")));
}

TEST(SessionErrorTest, DatasetsCountAsMemory) {
  const auto reads = [](int count) {
    return [count](Job& job) {
      auto [image, label] = job.Read(DrawnDigits({.count = count}), {.batch = 2});
      job.Fetch("y", Mean(image));
    };
  };
  for (const bool is_dry : {false, true}) {
    const auto session = StartOrDie({.dry_run = is_dry, .device_memory_bytes = 1 << 20});
    ASSERT_TRUE(session->Compile("few", reads(100)).ok());
    // 5,000 images of 28 x 28 bytes with a label each.
    const auto job = session->Compile("many", reads(5000));
    EXPECT_TRUE(absl::IsResourceExhausted(job.status()));
    EXPECT_THAT(std::string(job.status().message()),
                AllOf(HasSubstr("job 'many'"), HasSubstr("device 0 of node 0"),
                      HasSubstr("1.00 MiB; the largest:\n  data: 3."), HasSubstr("dataset")));
    EXPECT_TRUE(session->Compile("few again", reads(100)).ok());
  }
}

// Collectives and kernels keep what they have for as long as their job is loaded.
TEST(SessionErrorTest, LoadedJobsAddUp) {
  const auto session = StartOrDie({.devices = {4}, .device_memory_bytes = 1 << 20});
  const auto sum = [](Job& job) {
    const Tensor x = Variable(job.graph(), {.name = "x", .shape = {128, 4}});
    const Tensor y = Variable(job.graph(), {.name = "y", .shape = {4, 128}});
    job.Fetch("y", ToSbp(MatMul(ToSbp(x, sbp::S(1)), ToSbp(y, sbp::S(0))), sbp::B));
  };
  auto first = session->Compile("first", sum);
  ASSERT_TRUE(first.ok()) << first.status().message();
  absl::Status refused;
  for (int i = 0; i < 200 && refused.ok(); ++i) {
    refused = session->Compile(absl::StrCat("job ", i), sum).status();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << first->summary();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("collectives stage"));
  first->Unload();
  EXPECT_TRUE(session->Compile("in its place", sum).ok());
}

// Adds how often it was called by then, which is another number on each device.
class DriftingKernel final : public Kernel {
 public:
  DriftingKernel(int64_t elements, std::shared_ptr<std::atomic<int>> calls)
      : elements_(elements), calls_(std::move(calls)) {}
  absl::Status Run(const KernelRun& run) override {
    const float drift = run.step < 4 ? 0.0f : static_cast<float>(++*calls_);
    const auto* x = static_cast<const float*>(run.inputs[0]);
    auto* y = static_cast<float*>(run.outputs[0]);
    for (int64_t i = 0; i < elements_; ++i) y[i] = x[i] + drift;
    return absl::OkStatus();
  }

 private:
  const int64_t elements_;
  const std::shared_ptr<std::atomic<int>> calls_;
};

TEST(SessionErrorTest, ReplicasThatDifferAreNamed) {
  struct Case {
    std::vector<int> devices;
    NdSbp sbp;
    std::optional<int64_t> every;
    std::vector<std::string> words;  // none: it is not found
  };
  const std::vector<std::string> at_six = {"after step 6 of job 'train'", "after step 4 all"};
  for (const Case& one :
       std::vector<Case>{{{3}, sbp::B, 2, at_six},
                         {{1, 1},
                          sbp::B,
                          1,
                          {"after step 5 of job 'train'", "on node 0 cpu:0", "on node 1 cpu:0"}},
                         {{2, 2}, {sbp::S(0), sbp::B}, 2, at_six},
                         {{2, 2}, {sbp::B, sbp::S(1)}, 2, at_six},
                         {{2, 2}, sbp::S(0), 2, {}},
                         {{3}, sbp::B, 0, {}},
                         // At the end of the Run.
                         {{3}, sbp::B, std::nullopt, {"after step 20 of job 'train'"}},
                         {{1, 2}, sbp::S(0), std::nullopt, {}}}) {
    SCOPED_TRACE(one.sbp.ToString());
    const auto session = StartOrDie({.devices = one.devices, .check_replicas = one.every});
    ASSERT_TRUE(session->operators()
                    .Register(OpDef("drift").Rule("ab->ab").NoGradient().Sample(
                        {.inputs = {{DType::kF32, {4, 4}}}}))
                    .ok());
    const auto calls = std::make_shared<std::atomic<int>>(0);
    ASSERT_TRUE(
        session->kernels()
            .Register("drift",
                      [calls](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                        return std::make_unique<DriftingKernel>(spec.outputs[0].num_elements(),
                                                                calls);
                      })
            .ok());
    auto job = session->Compile("train", [&](Job& job) {
      const Tensor still = Variable(job.graph(), {.name = "still", .shape = {4}});
      const Tensor moves =
          Variable(job.graph(), {.name = "moves", .shape = {4, 4}, .sbp = one.sbp});
      Assign(still, still * 2.0);
      Assign(moves, ToSbp(Apply("drift", {ToSbp(moves, one.sbp)}), one.sbp));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    const auto result = job->Run({.steps = 20});
    if (one.words.empty()) {
      EXPECT_TRUE(result.ok()) << result.status().message();
      continue;
    }
    EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
    const std::string message(result.status().message());
    EXPECT_THAT(message, AllOf(HasSubstr("variable 'moves'"), HasSubstr("--check_replicas=1")));
    for (const std::string& words : one.words) EXPECT_THAT(message, HasSubstr(words));
  }
}

TEST(SessionErrorTest, AnIndexOutOfRangeEndsTheSessionWithItsCauseOnEveryNode) {
  const auto session = StartOrDie({.devices = {1, 2}});
  auto job = session->Compile("job", [](Job& job) {
    const Tensor table = Variable(job.graph(), {.name = "table", .shape = {4, 2}});
    job.Fetch("y", Mean(Embedding(table, job.Input("i", {6}, DType::kI32))));
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  const Array bad = Array::FromVector<int32_t>({6}, {0, 1, 2, 3, 9, 0});
  const auto result = job->Run({.feeds = {{"i", bad}}});
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("gather 'gather': index 9"), HasSubstr("session_test.cc:")));
  const std::string message(result.status().message());
  EXPECT_EQ(message.find("gather 'gather'"), message.rfind("gather 'gather'")) << message;
  // The first cause stays the answer.
  EXPECT_EQ(job->Run({.feeds = {{"i", bad}}}).status().message(), result.status().message());
}

}  // namespace
}  // namespace braid
