// The mirrored view: what each device computes by itself equals written-out math, data parallelism
// that is written so equals the consistent view's bit for bit, and where one value is needed a
// mirrored one is an error.

#include <braid/braid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/api/mistake.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

// What a job fetches in one step.
std::map<std::string, std::vector<float>> Fetched(const std::vector<int>& devices,
                                                  const std::function<void(Job&)>& record,
                                                  const std::vector<std::string>& names) {
  std::map<std::string, std::vector<float>> values;
  const auto session = StartOrDie({.devices = devices, .seed = 3, .progress = Progress::kOff});
  auto job = session->Compile("mirrored", record);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return values;
  const auto result = job->Run({.steps = 1});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return values;
  for (const std::string& name : names) {
    const Array& array = result->Last(name);
    const auto data = array.data<float>();
    values[name].assign(data.begin(), data.end());
  }
  return values;
}

// 0, 1, 2, ... as f32 [count].
Tensor Counting(Job& job, int64_t count) {
  return Cast(Iota(job.graph(), {DType::kI64, {count}}), DType::kF32);
}

TEST(MirroredTest, ValuesLeadBackAsTheyAreSaidTo) {
  for (const std::vector<int>& devices : {std::vector<int>{4}, {2, 2}, {1, 3}}) {
    const auto values = Fetched(devices,
                                [](Job& job) {
                                  job.Mirrored([&] {
                                    const Tensor own =
                                        MirrorParts(Counting(job, 8));  // {0, 1}, {2, 3}, ...
                                    EXPECT_EQ(own.shape(), Shape({2}));
                                    const Tensor squares = Square(own) + Constant(job.graph(), 1);
                                    job.Fetch("sum", SumMirrored(squares));
                                    job.Fetch("mean", MeanMirrored(squares));
                                    job.Fetch("stack", Stack(squares));
                                    job.Fetch("joined", JoinParts(squares));
                                    job.Fetch("third", FromRank(squares, 2));
                                    job.Fetch("scalars", Stack(ReduceSum(squares)));
                                  });
                                },
                                {"sum", "mean", "stack", "third", "scalars", "joined"});
    EXPECT_THAT(values.at("sum"), ElementsAre(4 + 0 + 4 + 16 + 36, 4 + 1 + 9 + 25 + 49));
    EXPECT_THAT(values.at("mean"), ElementsAre(15, 22));
    EXPECT_THAT(values.at("stack"), ElementsAre(1, 2, 5, 10, 17, 26, 37, 50));
    EXPECT_EQ(values.at("joined"), values.at("stack"));
    EXPECT_THAT(values.at("third"), ElementsAre(17, 26));
    EXPECT_THAT(values.at("scalars"), ElementsAre(3, 15, 43, 87));
  }
}

TEST(MirroredTest, RandomValuesAreEachDevicesOwn) {
  const auto record = [](Job& job) {
    const Tensor shared = RandomUniform(job.graph(), {3});
    job.Fetch("shared", shared);
    job.Mirrored([&] {
      job.Fetch("own", Stack(RandomUniform(job.graph(), {1000})));
      const Tensor dropped = Dropout(Mirror(Constant(job.graph(), 1, {.shape = {1000}})), 0.5);
      job.Fetch("dropped", Stack(dropped));
      job.Fetch("same", Stack(Mirror(shared)));
    });
    job.SetTraining(true);
  };
  const std::vector<std::string> names = {"shared", "own", "dropped", "same"};
  const auto one = Fetched({1}, record, names);
  auto four = Fetched({2, 2}, record, names);
  EXPECT_EQ(four.at("shared"), one.at("shared"));
  for (const std::string name : {"own", "dropped"}) {
    const std::vector<float>& all = four.at(name);
    ASSERT_EQ(all.size(), 4000u);
    // The first device draws what one device alone draws; the others draw something else.
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + 1000, one.at(name).begin())) << name;
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < a; ++b) {
        EXPECT_FALSE(std::equal(all.begin() + a * 1000, all.begin() + (a + 1) * 1000,
                                all.begin() + b * 1000))
            << name << " of " << a << " and " << b;
      }
    }
  }
  for (int device = 0; device < 4; ++device) {
    EXPECT_TRUE(std::equal(four.at("shared").begin(), four.at("shared").end(),
                           four.at("same").begin() + 3 * device));
  }
}

TEST(MirroredTest, GradientsOfSharedValuesAreSums) {
  const auto values =
      Fetched({2, 1},
              [](Job& job) {
                const Tensor w = Variable(job.graph(), {.name = "w", .shape = {2}, .init = "ones"});
                Tensor own;
                const Tensor loss = job.Mirrored([&] {
                  own = MirrorParts(Counting(job, 6));
                  return MeanMirrored(ReduceSum(own * Square(w)));
                });
                job.Minimize(loss, Sgd{.lr = 0.1});
                job.Fetch("w", job.GradientOf(w));
                job.Fetch("own", Stack(job.GradientOf(own)));
                job.Fetch("loss", loss);
              },
              {"w", "own", "loss"});
  // Of 1/3 * sum over the devices of (a w0^2 + b w1^2).
  EXPECT_THAT(values.at("w"), ElementsAre(FloatEq(2 * (0 + 2 + 4) / 3.f), FloatEq(2 * 9 / 3.f)));
  EXPECT_THAT(values.at("own"), Each(FloatEq(1 / 3.f)));
  EXPECT_THAT(values.at("loss"), ElementsAre(5));
}

enum class NormKind : uint8_t { kNone, kOwn, kSync };

Tensor LossOf(Tensor image, Tensor label, double dropout, NormKind norm) {
  Tensor x = Linear(image, 32, {.name = "fc1"});
  if (norm != NormKind::kNone) {
    x = BatchNormLayer(x, {.name = "norm", .sync = norm == NormKind::kSync});
  }
  x = Relu(x);
  if (dropout > 0) x = Dropout(x, dropout);
  return Mean(SoftmaxCrossEntropy(Linear(x, 10, {.name = "fc2"}), label));
}

constexpr int64_t kBatch = 32;

void Consistent(Job& job, int micro_batches, NormKind norm = NormKind::kNone) {
  auto [image, label] = job.Read(DrawnDigits({.count = 300}), {.batch = kBatch, .shuffle = true});
  const Tensor loss = LossOf(image, label, 0, norm);
  job.Minimize(loss, Adam{.lr = 0.01}, {.micro_batches = micro_batches});
  job.Fetch("loss", loss);
}

void DataParallel(Job& job, int micro_batches, double dropout = 0,
                  NormKind norm = NormKind::kNone) {
  const Tensor loss = job.Mirrored([&] {
    auto [image, label] = job.Read(DrawnDigits({.count = 300}),
                                   {.batch = kBatch / job.devices().size(), .shuffle = true});
    return MeanMirrored(LossOf(image, label, dropout, norm));
  });
  job.Minimize(loss, Adam{.lr = 0.01}, {.micro_batches = micro_batches});
  job.Fetch("loss", loss);
}

TEST(MirroredTest, DataParallelismIsTheConsistentViewsBitForBit) {
  for (const std::vector<int>& devices : {std::vector<int>{1}, {2}, {4}, {1, 1}, {2, 2}}) {
    const std::pair<int, NormKind> variants[] = {
        {1, NormKind::kNone}, {2, NormKind::kNone}, {1, NormKind::kSync}};
    for (const auto& variant : variants) {
      const int micro_batches = variant.first;
      const NormKind norm = variant.second;
      const TrainingOptions options = {
          .layout = {.devices = devices}, .steps = 12, .wants_variables = true};
      const auto consistent =
          RunTraining(options, [&](Job& job) { Consistent(job, micro_batches, norm); });
      const auto mirrored =
          RunTraining(options, [&](Job& job) { DataParallel(job, micro_batches, 0, norm); });
      ASSERT_TRUE(consistent.ok()) << consistent.status();
      ASSERT_TRUE(mirrored.ok()) << mirrored.status();
      EXPECT_LT(mirrored->losses.back(), mirrored->losses.front());
      ASSERT_EQ(mirrored->variables.size(), consistent->variables.size());
      for (size_t i = 0; i < mirrored->variables.size(); ++i) {
        const auto& [name, value] = mirrored->variables[i];
        EXPECT_EQ(name, consistent->variables[i].first);
        EXPECT_TRUE(
            std::ranges::equal(value.data<float>(), consistent->variables[i].second.data<float>()))
            << name << " on " << devices.size() << " nodes, micro-batches " << micro_batches;
      }
    }
  }
}

// With batches and dropout of its own each device still has the same weights after each step.
TEST(MirroredTest, BatchNormalisationAndDropoutAreEachDevicesOwn) {
  const auto session =
      StartOrDie({.devices = {2, 2}, .progress = Progress::kOff, .check_replicas = 1});
  auto job = session->Compile("train", [](Job& job) { DataParallel(job, 1, 0.3, NormKind::kOwn); });
  ASSERT_TRUE(job.ok()) << job.status();
  const auto result = job->Run({.steps = 20});
  ASSERT_TRUE(result.ok()) << result.status();
  const std::vector<double> losses = result->Scalars("loss");
  EXPECT_LT(losses.back(), losses.front());
}

// Whatever the compiler makes of a model otherwise (fused operators, blocks of channels, narrow
// products, blocks that are computed again) it makes of a mirrored one.
TEST(MirroredTest, EveryPassKnowsMirroredValues) {
  const auto record = [](Job& job) {
    const Tensor loss = job.Mirrored([&] {
      auto [image, label] = job.Read(DrawnDigits({.count = 300}), {.batch = 8, .shuffle = true});
      Tensor x = Reshape(image, {-1, 1, 28, 28});
      for (const int channels : {16, 32}) {
        x = ConvLayer(x, channels, {.padding = {1, 1}});
        x = MaxPool(Relu(BatchNormLayer(x)), {.kernel = {2, 2}});
      }
      x = job.Recompute([&] { return Gelu(Linear(Flatten(x), 64)); });
      x = job.Recompute([&] { return Dropout(LayerNormLayer(x), 0.1); });
      return MeanMirrored(Mean(SoftmaxCrossEntropy(Linear(x, 10), label)));
    });
    job.Minimize(loss, AdamW{.lr = 0.003}, {.micro_batches = 2, .clip_global_norm = 1});
    job.Fetch("loss", loss);
  };
  for (const DType precision : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto session = StartOrDie({.devices = {2, 1},
                                     .precision = precision,
                                     .progress = Progress::kOff,
                                     .check_replicas = 1});
    auto job = session->Compile("train", record);
    ASSERT_TRUE(job.ok()) << job.status();
    const auto result = job->Run({.steps = 30});
    ASSERT_TRUE(result.ok()) << result.status();
    const std::vector<double> losses = result->Scalars("loss");
    EXPECT_LT(losses.back(), losses.front());
  }
}

// Mirrored over the first dimension, split over the second: data parallelism of tensor parallelism.
TEST(MirroredTest, OtherDimensionsAreTheCompilers) {
  const auto record = [](Job& job, bool is_mirrored) {
    const auto placement = job.devices().WithHierarchy({2, 2});
    job.On(placement, [&] {
      const auto loss_of = [&](Tensor image, Tensor label) {
        Tensor x = Relu(Linear(image, 32, {.name = "fc1", .weight = NdSbp{sbp::B, sbp::S(1)}}));
        x = Linear(x, 10, {.name = "fc2", .weight = NdSbp{sbp::B, sbp::S(0)}});
        return Mean(SoftmaxCrossEntropy(x, label));
      };
      Tensor loss;
      if (is_mirrored) {
        loss = job.Mirrored({0}, [&] {
          auto [image, label] = job.Read(DrawnDigits({.count = 300}), {.batch = kBatch / 2});
          return MeanMirrored(loss_of(image, label));
        });
      } else {
        auto [image, label] = job.Read(DrawnDigits({.count = 300}), {.batch = kBatch});
        loss = loss_of(image, label);
      }
      job.Minimize(loss, Adam{.lr = 0.01});
      job.Fetch("loss", loss);
    });
  };
  for (const std::vector<int>& devices : {std::vector<int>{4}, {2, 2}}) {
    const TrainingOptions options = {
        .layout = {.devices = devices}, .steps = 12, .wants_variables = true};
    const auto consistent = RunTraining(options, [&](Job& job) { record(job, false); });
    const auto mirrored = RunTraining(options, [&](Job& job) { record(job, true); });
    ASSERT_TRUE(consistent.ok()) << consistent.status();
    ASSERT_TRUE(mirrored.ok()) << mirrored.status();
    for (size_t step = 0; step < mirrored->losses.size(); ++step) {
      EXPECT_NEAR(mirrored->losses[step], consistent->losses[step], 1e-5) << step;
    }
  }
}

// The lines of a summary that say what a job needs and sends.
std::vector<std::string> MemoryAndBytes(const CompiledJob& job) {
  std::vector<std::string> lines;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(job.summary(), '\n'))) {
    if (absl::StrContains(line, " need") || absl::StrContains(line, " sends ")) {
      lines.push_back(line);
    }
  }
  EXPECT_GE(lines.size(), 2u);
  return lines;
}

// Leading in and out takes no memory and sends nothing.
TEST(MirroredTest, CostsWhatTheConsistentViewDoes) {
  for (const std::vector<int>& devices : {std::vector<int>{4}, {1, 1}, {2, 2}}) {
    const auto session = StartOrDie({.devices = devices, .progress = Progress::kOff});
    auto consistent = session->Compile("consistent", [](Job& job) { Consistent(job, 1); });
    auto mirrored = session->Compile("mirrored", [](Job& job) { DataParallel(job, 1); });
    ASSERT_TRUE(consistent.ok()) << consistent.status();
    ASSERT_TRUE(mirrored.ok()) << mirrored.status();
    EXPECT_EQ(MemoryAndBytes(*mirrored), MemoryAndBytes(*consistent));
  }
}

TEST(MirroredTest, LabelsSayWhereValuesAreMirrored) {
  const auto session = StartOnTwoDevices();
  auto job = session->Compile("train", [](Job& job) { DataParallel(job, 1); });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->Explain(), ::testing::HasSubstr("(M, M)->(M)"));
}

std::vector<Mistake> Mistakes() {
  const auto own = [](Job& job) { return MirrorParts(Counting(job, 4)); };
  const std::string ways = "SumMirrored, MeanMirrored, Stack or FromRank";
  return {
      Recorded("fetch", [=](Job& job) { job.Mirrored([&] { job.Fetch("x", own(job)); }); },
               {"fetch", "one value is needed", "2 values", ways}),
      Recorded("minimize",
               [=](Job& job) {
                 const Tensor w = Variable(job.graph(), {.name = "w", .shape = {2}});
                 job.Mirrored([&] { job.Minimize(ReduceSum(own(job) * w), Sgd{.lr = 0.1}); });
               },
               {"the loss", "is mirrored", "MeanMirrored(loss)"}),
      Recorded("assign",
               [=](Job& job) {
                 const Tensor w = Variable(job.graph(), {.name = "w", .shape = {2}});
                 job.Mirrored([&] { Assign(w, own(job)); });
                 job.Fetch("w", w);
               },
               {"assign", "one value is needed", ways}),
      Recorded("outside", [](Job& job) { job.Fetch("x", MirrorParts(Counting(job, 4))); },
               {"MirrorParts", "outside job.Mirrored"}),
      Recorded("not mirrored", [](Job& job) { job.Fetch("x", MeanMirrored(Counting(job, 4))); },
               {"MeanMirrored", "f32[4]", "is not mirrored"}),
      Recorded(
          "mirrored twice",
          [=](Job& job) { job.Mirrored([&] { job.Fetch("x", SumMirrored(Mirror(own(job)))); }); },
          {"mirror", "is mirrored already"}),
      Recorded("rank",
               [=](Job& job) { job.Mirrored([&] { job.Fetch("x", FromRank(own(job), 2)); }); },
               {"FromRank", "rank is 2", "2 values"}),
      Recorded("parts",
               [](Job& job) {
                 job.Mirrored([&] { job.Fetch("x", SumMirrored(MirrorParts(Counting(job, 5)))); });
               },
               {"mirror_parts", "f32[5]", "a multiple of the 2 devices"}),
      Recorded("elsewhere",
               [=](Job& job) {
                 Tensor x;
                 job.Mirrored([&] { x = own(job); });
                 job.On(Placement("cpu", std::vector<DeviceId>{{.node = 0, .device = 0}}),
                        [&] { job.Fetch("x", SumMirrored(Relu(x))); });
               },
               {"relu", "is placed on", "stays where it was made"}),
      Recorded("nested",
               [=](Job& job) {
                 job.Mirrored([&] { job.Mirrored([&] { job.Fetch("x", Stack(own(job))); }); });
               },
               {"Mirrored", "inside another"}),
      Recorded("dimension",
               [=](Job& job) { job.Mirrored({1}, [&] { job.Fetch("x", Stack(own(job))); }); },
               {"Mirrored", "no dimension 1"}),
  };
}

class MirroredMistakesTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MirroredMistakesTest, IsAnErrorWithTheUsersLine) { ExpectItsError(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Users, MirroredMistakesTest, testing::ValuesIn(Mistakes()), NameOfMistake);

}  // namespace
}  // namespace braid
