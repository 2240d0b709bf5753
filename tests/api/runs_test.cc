// What a Run keeps, writes to files and says of numbers that look wrong.

#include <braid/braid.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Pointwise;

CompiledJob CompileOrDie(Session& session, const std::string& name,
                         const std::function<void(Job&)>& record) {
  auto job = session.Compile(name, record);
  EXPECT_TRUE(job.ok()) << job.status().message();
  return *std::move(job);
}

// A job whose loss is the mean of what is fed as x.
CompiledJob CompileLossOfX(Session& session) {
  return CompileOrDie(session, "train", [](Job& job) {
    const Tensor v = Variable(job.graph(), {.name = "v", .shape = {2}});
    const Tensor loss = Mean(Square(v + job.Input("x", {2})));
    job.Minimize(loss, Sgd{.lr = 0.1});
    job.Fetch("loss", loss);
    job.Fetch("sum", Sum(v));
  });
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(RunTest, KeepsWhatItIsTold) {
  const auto session = StartOrDie({.devices = {2}});
  CompiledJob job = CompileOrDie(*session, "job", [](Job& job) {
    const Tensor step = Cast(Step(job.graph()), DType::kF32);
    job.Fetch("pair", step * Iota(job.graph(), {DType::kF32, {2}}) + 1);
    job.Fetch("step", step);
    job.Fetch("late", Less(step, Constant(job.graph(), 3)));
  });
  const auto run = [&](Keep keep) {
    job.SetStep(0);
    auto result = job.Run({.steps = 5, .keep = keep});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return *std::move(result);
  };
  const RunResult all = run(Keep::kAll), last = run(Keep::kLast), mean = run(Keep::kMean);
  EXPECT_EQ(all.Values("pair").size(), 5u);
  ASSERT_EQ(last.Values("pair").size(), 1u);
  ASSERT_EQ(mean.Values("pair").size(), 1u);
  EXPECT_EQ(last.Last("pair").data<float>()[1], 5);
  EXPECT_EQ(last.Mean("step"), 4);
  EXPECT_EQ(mean.Last("pair").data<double>()[0], 1);
  EXPECT_EQ(mean.Last("pair").data<double>()[1], 3);
  EXPECT_EQ(mean.Mean("step"), all.Mean("step"));
  EXPECT_EQ(mean.Scalars("late"), std::vector<double>{0.6});
  EXPECT_TRUE(session->Close(absl::OkStatus()).ok());
}

TEST(RunTest, PrintsEverySoManySteps) {
  const auto session = StartOrDie({.devices = {2}});
  CompiledJob job = CompileOrDie(*session, "job", [](Job& job) {
    const Tensor step = Cast(Step(job.graph()), DType::kF32);
    job.Print(step, "step", 2);
    job.Print(Iota(job.graph(), {DType::kF64, {2, 5}}, 1) + Cast(step, DType::kF64), "table", 3);
    job.Fetch("step", step);
  });
  testing::internal::CaptureStdout();
  const auto result = job.Run({.steps = 4});
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->Values("step").size(), 4u);
  EXPECT_THAT(printed, AllOf(HasSubstr("job 'job' step 0: step f32[]: 0\n"),
                             HasSubstr("job 'job' step 2: step f32[]: 2\n"),
                             HasSubstr("job 'job' step 3: table f64[2, 5] from 3 to 7, mean 5: "
                                       "3 4 5 6 7 3 4 5 ...\n")));
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 4);
}

TEST(RunTest, EveryJobIsExplained) {
  for (const std::string extension : {"txt", "dot"}) {
    const std::string path = TestFolder() + "/plan";
    const auto session = StartOrDie({.dry_run = true, .explain_path = path + "." + extension});
    for (const char* name : {"train", "evaluate"}) {
      CompileOrDie(*session, name, [](Job& job) { job.Fetch("y", job.Input("x", {2})); });
    }
    const std::vector<std::string> first = LinesOf(path + "." + extension);
    ASSERT_FALSE(first.empty());
    if (extension == "dot") {
      EXPECT_EQ(first[0], "digraph plan {");
      // The jobs are alike, but for their names in the second line.
      std::vector<std::string> later = LinesOf(path + ".evaluate.dot");
      ASSERT_EQ(later.size(), first.size());
      EXPECT_THAT(first[1], HasSubstr("label=\"job train; on cpu[1]{0.0}"));
      EXPECT_THAT(later[1], HasSubstr("label=\"job evaluate; on cpu[1]{0.0}"));
      later[1] = first[1];
      EXPECT_EQ(later, first);
    } else {
      EXPECT_EQ(std::count_if(first.begin(), first.end(),
                              [](const std::string& line) { return line.starts_with("job '"); }),
                2);
    }
  }
}

TEST(RunTest, AnExplanationSaysEachThingOnce) {
  const auto session = StartOrDie({.devices = {2}, .explain_path = TestFolder() + "/once.txt"});
  const CompiledJob job = CompileOrDie(*session, "train", [](Job& job) {
    examples::TrainMnist(job, SmallMnist(examples::Parallel::kData, DType::kF32));
  });
  const std::string text = job.Explain();
  EXPECT_THAT(text, HasSubstr("; or (B, S(1))->(S(1)), "));
  std::set<std::string> seen;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Where parts of a group's memory lie may be alike in two.
    if (absl::StartsWith(line, "  scratch ") || absl::StartsWith(line, "#   ")) continue;
    EXPECT_TRUE(seen.insert(std::string(line)).second) << line;
  }
  // An operator's attributes, its layout and the bytes of a transfer.
  for (const char* once : {"fields=[0, 1]", "sbp=()->(S(0), S(0))", "boxing reduce_mean from"}) {
    const size_t at = text.find(once);
    ASSERT_NE(at, text.npos) << once;
    EXPECT_EQ(text.find(once, at + 1), text.npos) << once;
  }
}

// Runs of one step have one bar, which counts them; the bar of a longer one is gone at its end.
TEST(RunTest, RunsOfOneStepHaveOneBar) {
  const auto session = Session::Start({.progress = Progress::kOn});
  ASSERT_TRUE(session.ok()) << session.status().message();
  CompiledJob job = CompileOrDie(**session, "job", [](Job& job) {
    auto [image, label] = job.Read(DrawnDigits({.count = 100}), {.batch = 10});
    job.Fetch("ink", Mean(image));
    job.Fetch("label", Mean(Cast(label, DType::kF32)));
  });
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  int runs = 0;
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(350)) {
    ASSERT_TRUE(job.Run().ok());
    ++runs;
  }
  const std::string bar = testing::internal::GetCapturedStderr();
  int last = 0, drawn = 0;
  for (size_t at = bar.find("job step "); at != bar.npos; at = bar.find("job step ", at + 1)) {
    const int count = std::stoi(bar.substr(at + 9));
    EXPECT_GT(count, last);
    last = count;
    ++drawn;
  }
  EXPECT_GE(drawn, 2) << bar;
  EXPECT_LE(last, runs);
  EXPECT_THAT(bar, AllOf(HasSubstr(" steps/s"), HasSubstr(" samples/s"), HasSubstr("  ink "),
                         HasSubstr("  label ")));
}

TEST(RunTest, EachStepIsTold) {
  const auto session = StartOrDie({.devices = {2}});
  CompiledJob job = CompileOrDie(*session, "job", [](Job& job) {
    const Tensor step = Cast(Step(job.graph()), DType::kF32);
    job.Fetch("step", step);
    job.Fetch("pair", BroadcastTo(step, {2}));
  });
  std::vector<int64_t> told;
  const auto on_step = [&](int64_t step, const StepValues& values) -> absl::Status {
    told.push_back(step);
    EXPECT_EQ(values.size(), 2u);
    EXPECT_EQ(values.at("step").data<float>()[0], static_cast<float>(step));
    EXPECT_EQ(values.at("pair").data<float>()[1], static_cast<float>(step));
    return step < 6 ? absl::OkStatus() : absl::OutOfRangeError("enough");
  };
  ASSERT_TRUE(job.Run({.steps = 5, .keep = Keep::kLast, .on_step = on_step}).ok());
  EXPECT_EQ(told, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  const auto ended = job.Run({.steps = 5, .on_step = on_step});
  EXPECT_THAT(std::string(ended.status().message()), HasSubstr("enough"));
}

TEST(RunTest, AnErrorOfTheFunctionThatRecordsIsCompiles) {
  const auto session = StartOrDie({});
  const auto job = session->Compile(
      "job", [](Job&) -> absl::Status { return absl::NotFoundError("no model here"); });
  EXPECT_EQ(job.status(), absl::NotFoundError("no model here"));
}

// Ten samples in batches of 4, once and twice through.
TEST(RunTest, EpochsGoThroughAllSamples) {
  const DatasetSpec data = DrawnDigits({.count = 10});
  const auto run = [&](Last last, int64_t batch, int64_t epochs) -> absl::StatusOr<RunResult> {
    const auto session = StartOrDie({.devices = {2}});
    CompiledJob job = CompileOrDie(*session, "job", [&](Job& job) {
      const BatchOptions options = {.batch = batch, .shuffle = true, .last = last};
      const Tensor label = Cast(job.Read(data, options)[1], DType::kF32);
      const Tensor mask = job.SampleMask(data, options);
      job.Fetch("count", Sum(mask));
      job.Fetch("sum", Scale(Sum(mask * label), 1.0 / static_cast<double>(job.NumSamples(data))));
      job.Fetch("labels", label);
    });
    return job.Run({.epochs = epochs});
  };
  const auto whole = run(Last::kWrap, 10, 1);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->Scalars("count"), std::vector<double>{10});
  const double mean = whole->Scalars("sum")[0];

  const auto padded = run(Last::kPad, 4, 2);
  ASSERT_TRUE(padded.ok()) << padded.status().message();
  EXPECT_EQ(padded->Scalars("count"), (std::vector<double>{4, 4, 2, 4, 4, 2}));
  const std::vector<double> sums = padded->Scalars("sum");
  EXPECT_NEAR(sums[0] + sums[1] + sums[2], mean, 1e-6);
  EXPECT_NEAR(sums[3] + sums[4] + sums[5], mean, 1e-6);
  // What fills up is the epoch's own beginning.
  EXPECT_EQ(padded->Values("labels")[2].data<float>()[2],
            padded->Values("labels")[0].data<float>()[0]);

  const auto large = run(Last::kPad, 16, 1);
  ASSERT_TRUE(large.ok()) << large.status().message();
  EXPECT_EQ(large->Scalars("count"), std::vector<double>{10});
  EXPECT_NEAR(large->Scalars("sum")[0], mean, 1e-6);

  const auto dropped = run(Last::kDrop, 4, 2);
  ASSERT_TRUE(dropped.ok()) << dropped.status().message();
  EXPECT_EQ(dropped->Scalars("count"), (std::vector<double>{4, 4, 4, 4}));

  EXPECT_THAT(std::string(run(Last::kWrap, 4, 1).status().message()),
              AllOf(HasSubstr("the 10 samples of read 'read' are no whole number of batches of 4"),
                    HasSubstr("kPad")));
}

// A loss of the samples of the epoch alone, trained and told, is the same in any parts of a step.
TEST(RunTest, MasksAreCutIntoMicroBatches) {
  const DatasetSpec data = DrawnDigits({.count = 10});
  const auto run = [&](int64_t batch, int micro_batches, const std::vector<int>& devices) {
    const auto session = StartOrDie({.devices = devices});
    CompiledJob job = CompileOrDie(*session, "job", [&](Job& job) {
      const BatchOptions options = {.batch = batch, .shuffle = true, .last = Last::kPad};
      const auto [image, label] = job.Read(data, options);
      const Tensor x = ToSbp(Reshape(image, {batch, 784}), sbp::S(0));
      const Tensor losses = SoftmaxCrossEntropy(Linear(x, 10, {.name = "fc"}), label);
      const Tensor mask = job.SampleMask(data, options);
      job.Minimize(Sum(mask * losses) / Sum(mask), Sgd{.lr = 0.1},
                   {.micro_batches = micro_batches});
      job.Fetch("loss", Sum(mask * losses));
      job.Fetch("count", Sum(mask));
      job.Fetch("mask", mask);
    });
    const auto result = job.Run({.epochs = 3});
    EXPECT_TRUE(result.ok()) << result.status().message();
    std::vector<double> told = result->Scalars("count");
    for (const double loss : result->Scalars("loss")) told.push_back(loss);
    for (const Array& mask : result->Values("mask")) {
      for (const float sample : mask.data<float>()) told.push_back(sample);
    }
    return told;
  };
  for (const int64_t batch : {4, 12}) {
    const std::vector<double> whole = run(batch, 1, {1});
    for (const int micro_batches : {1, 2, 4}) {
      for (const std::vector<int>& devices : {std::vector<int>{1}, {2}, {1, 1}}) {
        EXPECT_THAT(run(batch, micro_batches, devices), Pointwise(testing::DoubleNear(1e-5), whole))
            << batch << " in " << micro_batches << " on " << devices.size() << " nodes";
      }
    }
  }
}

TEST(RunTest, VariablesThatNothingChangesAreNamed) {
  const auto session = StartOrDie({});
  const auto layer = [](const std::string& name) {
    return [=](Job& job) {
      const Tensor y = Linear(job.Input("x", {1, 2}), 2, {.name = name});
      if (name == "head") job.Minimize(Mean(Square(y)), Sgd{.lr = 0.1});
      job.Fetch("y", y);
    };
  };
  CompileOrDie(*session, "train", layer("head"));
  const auto warnings = [&](const std::string& job_name, const std::string& layer_name) {
    CompiledJob job = CompileOrDie(*session, job_name, layer(layer_name));
    testing::internal::CaptureStderr();
    EXPECT_TRUE(job.Run({.feeds = {{"x", Array(DType::kF32, {1, 2})}}}).ok());
    EXPECT_TRUE(job.Run().ok());
    return testing::internal::GetCapturedStderr();
  };
  const std::string said = warnings("evaluate", "haed");
  EXPECT_THAT(said, AllOf(HasSubstr("job 'evaluate' reads variables that no job changes"),
                          HasSubstr("haed.weight, haed.bias"), HasSubstr("head.weight")));
  EXPECT_EQ(said.find("evaluate"), said.rfind("evaluate")) << "once";
  ASSERT_TRUE(session->Set("haed.bias", Array(DType::kF32, {2})).ok());
  EXPECT_THAT(warnings("again", "haed"), HasSubstr("first values: haed.weight; the nearest"));
}

TEST(RunTest, MetricsGoOnWhereACheckpointWasLoaded) {
  const std::string path = TestFolder() + "/metrics.json", folder = TestFolder() + "/metrics";
  std::filesystem::remove_all(folder);
  const Array x = Array::FromVector<float>({2}, {1, 2});
  const auto run = [&](bool loads) {
    const auto session = StartOrDie({.metrics_path = path});
    CompiledJob job = CompileLossOfX(*session);
    if (loads) {
      EXPECT_TRUE(session->Load(folder).ok());
    }
    EXPECT_TRUE(job.Run({.steps = 2, .feeds = {{"x", x}}}).ok());
    EXPECT_TRUE(session->Save(folder).ok());
  };
  run(false);
  EXPECT_EQ(LinesOf(path).size(), 4u);
  run(true);
  const std::vector<std::string> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_THAT(lines[0], MatchesRegex("\\{\"job\": \"train\", \"step\": 0, \"(loss|sum)\": .*, "
                                     "\"time\": [0-9]+\\.[0-9]+\\}"));
  EXPECT_THAT(lines[7], HasSubstr("\"step\": 3, "));
  run(false);
  EXPECT_EQ(LinesOf(path).size(), 4u);
}

TEST(RunTest, ALossThatIsNaNEndsTheRun) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Array good = Array::FromVector<float>({2}, {1, 2});
  const Array bad = Array::FromVector<float>({2}, {1, nan});
  {
    const auto session = StartOrDie({.devices = {2}});
    CompiledJob job = CompileLossOfX(*session);
    ASSERT_TRUE(job.Run({.feeds = {{"x", good}}}).ok());
    const std::string said(job.Run({.feeds = {{"x", bad}}}).status().message());
    EXPECT_THAT(said, AllOf(HasSubstr("the loss 'loss' of job 'train' is NaN in step 1"),
                            HasSubstr("--allow_nan"), HasSubstr("runs_test.cc:")));
    EXPECT_EQ(said.find("runs_test.cc:"), said.rfind("runs_test.cc:")) << said;
  }
  const auto session = StartOrDie({.devices = {2}, .allow_nan = true});
  CompiledJob job = CompileLossOfX(*session);
  const auto result = job.Run({.steps = 2, .feeds = {{"x", bad}}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(std::isnan(result->Last("sum").data<float>()[0]));
}

}  // namespace
}  // namespace braid
