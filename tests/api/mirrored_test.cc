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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/api/mistake.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

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

// A batch of each device that micro-batches do not divide is said in its own rows.
TEST(MirroredTest, MicroBatchesDivideTheBatchOfEachDevice) {
  const auto session = StartOrDie({.devices = {2}, .progress = Progress::kOff});
  const auto job = session->Compile("uneven", [](Job& job) {
    const Tensor x = job.Input("x", {6, 4});
    const Tensor loss =
        job.Mirrored([&] { return MeanMirrored(Mean(Linear(MirrorParts(x), 1, {.name = "fc"}))); });
    job.Minimize(loss, Sgd{.lr = 0.1}, {.micro_batches = 2});
  });
  ASSERT_FALSE(job.ok());
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("each of 2 devices has 3 of its 6 rows, which must be a multiple of "
                        "micro_batches"));
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

// Between the layouts that other dimensions may have, a mirrored value stays where it is, also
// where parts are uneven and blocks of one axis lie in blocks of it.
TEST(MirroredTest, OtherDimensionsChangeTheirLayouts) {
  struct Case {
    std::vector<int> devices;
    std::vector<int64_t> hierarchy;
    int mirrored;
  };
  const std::vector<Sbp> kinds = {sbp::B, sbp::S(0), sbp::S(1)};
  for (const Case& c :
       {Case{{3, 3}, {2, 3}, 0}, Case{{3, 3}, {3, 2}, 1}, Case{{4, 4}, {2, 2, 2}, 1}}) {
    const auto layouts = [&](Tensor x, const Sbp& outer, const Sbp& inner) {
      NdSbp sbp = NdSbp::Uniform(static_cast<int>(c.hierarchy.size()), inner);
      if (c.mirrored != 0) sbp[0] = outer;
      sbp[c.mirrored] = sbp::M;
      return ToSbp(x, sbp);
    };
    std::vector<std::string> names;
    const auto record = [&](Job& job) {
      names.clear();
      job.On(job.devices().WithHierarchy(c.hierarchy), [&] {
        job.Mirrored({c.mirrored}, [&] {
          const Tensor own = MirrorParts(Reshape(Counting(job, 210), {30, 7}));
          for (const Sbp& a : kinds) {
            for (const Sbp& b : kinds) {
              for (const Sbp& next : kinds) {
                const Tensor x = Square(layouts(own, a, b));
                // Addends, to be summed up into each of the layouts.
                const Tensor sums = MatMul(layouts(own, sbp::B, sbp::S(1)),
                                           Constant(job.graph(), 1, {.shape = {7, 7}}));
                names.push_back(absl::StrCat(a.ToString(), b.ToString(), next.ToString()));
                job.Fetch(names.back(), JoinParts(layouts(x, next, b) + layouts(x, b, next) +
                                                  layouts(sums, next, a)));
              }
            }
          }
        });
      });
    };
    const auto fetched = Fetched(c.devices, record, names);
    for (const std::string& name : names) {
      const std::vector<float>& all = fetched.at(name);
      ASSERT_EQ(all.size(), 210u);
      for (int i = 0; i < 210; ++i) {
        const int row = i / 7;
        const float expected = 2.f * i * i + 49.f * row + 21;
        ASSERT_EQ(all[i], expected) << name << " at " << i;
      }
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

// Of a block that is computed again, some of what comes in is shared, and is so in the backward
// pass.
TEST(MirroredTest, BlocksOfSharedValuesAreComputedAgain) {
  const auto record = [](Job& job, bool is_mirrored) {
    const Tensor w = Variable(job.graph(), {.name = "w", .shape = {2}, .init = "ones"});
    const Tensor shared = Scale(Square(w), 0.5);
    const auto block = [&](Tensor x) {
      return job.Recompute([&] { return Gelu(Tanh(x * shared) * Sigmoid(shared)); });
    };
    const Tensor all = Reshape(Counting(job, 16), {8, 2});
    const Tensor loss =
        is_mirrored ? job.Mirrored([&] { return SumMirrored(Sum(block(MirrorParts(all)))); })
                    : Sum(block(all));
    job.Minimize(loss, Sgd{.lr = 0.1});
    job.Fetch("w", job.GradientOf(w));
  };
  const auto consistent = Fetched({1}, [&](Job& job) { record(job, false); }, {"w"});
  for (const std::vector<int>& devices : {std::vector<int>{1}, {4}, {2, 2}}) {
    const auto mirrored = Fetched(devices, [&](Job& job) { record(job, true); }, {"w"});
    EXPECT_THAT(mirrored.at("w"), Pointwise(testing::FloatNear(1e-6), consistent.at("w")));
  }
}

// In micro-batches a device has a part of each of them.
TEST(MirroredTest, MicroBatchesAreLedBackWhole) {
  for (const int micro_batches : {1, 2}) {
    const auto values = Fetched(
        {2},
        [&](Job& job) {
          const Tensor w = Variable(job.graph(), {.name = "w", .shape = {1}, .init = "ones"});
          job.Mirrored([&] {
            const Tensor own = job.Read(DrawnDigits({.count = 300}), {.batch = 4})[0];
            const Tensor means = ReduceMean(own, {.axes = {1}}) * w;
            job.Fetch("stack", Stack(means));
            job.Fetch("joined", JoinParts(means));
            job.Fetch("sum", SumMirrored(means));
            job.Fetch("first", FromRank(means, 0));
            job.Minimize(MeanMirrored(Mean(means)), Sgd{.lr = 0.1},
                         {.micro_batches = micro_batches});
          });
        },
        {"stack", "joined", "sum", "first"});
    const std::vector<float>&stack = values.at("stack"), &joined = values.at("joined");
    ASSERT_EQ(stack.size(), 8u);
    ASSERT_EQ(joined.size(), 8u);
    for (int row = 0; row < 4; ++row) {
      EXPECT_EQ(values.at("first")[row], stack[row]);
      EXPECT_FLOAT_EQ(values.at("sum")[row], stack[row] + stack[4 + row]);
      // The rows of each micro-batch are the first device's, then the second's.
      const int part = 4 / micro_batches, of = row / part, at = row % part;
      EXPECT_EQ(stack[row], joined[2 * part * of + at]);
      EXPECT_EQ(stack[4 + row], joined[2 * part * of + part + at]);
    }
  }
}

TEST(MirroredTest, AllDimensionsByNameAreAll) {
  const auto values =
      Fetched({2, 2},
              [](Job& job) {
                job.On(job.devices().WithHierarchy({2, 2}), [&] {
                  Tensor x;
                  job.Mirrored({0, 1}, [&] { x = MirrorParts(Counting(job, 4)); });
                  job.Mirrored([&] { job.Fetch("x", Stack(x + MirrorParts(Counting(job, 4)))); });
                });
              },
              {"x"});
  EXPECT_THAT(values.at("x"), ElementsAre(0, 2, 4, 6));
}

TEST(MirroredTest, LabelsSayWhereValuesAreMirrored) {
  const auto session = StartOnTwoDevices();
  auto job = session->Compile("train", [](Job& job) { DataParallel(job, 1); });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->Explain(), ::testing::HasSubstr("(M, M)->(M)"));
}

// Of types, layouts and sizes.
std::vector<Mistake> MistakesOfValues() {
  const auto own = [](Job& job) { return MirrorParts(Counting(job, 4)); };
  return {
      Recorded("sum of bools",
               [=](Job& job) {
                 job.Mirrored([&] {
                   const Tensor x = own(job);
                   job.Fetch("x", SumMirrored(Less(x, Square(x))));
                 });
               },
               {"SumMirrored", "bool[2]", "Cast(x, DType::kI32)"}),
      Recorded("mean of integers",
               [=](Job& job) {
                 job.Mirrored([&] { job.Fetch("x", MeanMirrored(Cast(own(job), DType::kI64))); });
               },
               {"MeanMirrored", "i64[2]", "Cast(x, DType::kF32)"}),
      Recorded("fewer devices",
               [](Job& job) {
                 job.Mirrored([&] {
                   job.On(Placement("cpu", std::vector<DeviceId>{{.node = 0, .device = 0}}),
                          [&] { job.Fetch("x", Stack(RandomUniform(job.graph(), {3}))); });
                 });
               },
               {"2 values", "has 1 devices to mirror over", "job.On stands around"}),
      Recorded("hint",
               [=](Job& job) {
                 job.Mirrored([&] { job.Fetch("x", Stack(ToSbp(own(job), {sbp::S(0)}))); });
               },
               {"identity", "a hint that is not M on dimension 0", "(M)->(M)"}),
      Recorded("batch",
               [](Job& job) {
                 job.Mirrored([&] {
                   const auto read = job.Read(DrawnDigits({.count = 10}), {.batch = 6});
                   job.Fetch("x", MeanMirrored(Mean(read[0])));
                 });
               },
               {"batch is 12 (that of each of 2 devices, together)", "10 samples"}),
  };
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
INSTANTIATE_TEST_SUITE_P(UsersOfValues, MirroredMistakesTest, testing::ValuesIn(MistakesOfValues()),
                         NameOfMistake);

}  // namespace
}  // namespace braid
