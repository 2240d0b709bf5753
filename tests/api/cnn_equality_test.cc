// A small convolutional network: any layout gives the numbers of one device, and batch statistics
// are those of each micro-batch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/plan/channel_blocks.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

struct CnnOptions {
  DType dtype = DType::kF64;
  DType precision = DType::kF32;  // of products
  int micro_batches = 1;
  bool splits_channels = false;    // of the second convolution, over all devices
  bool is_wide = false;            // so many channels that f32 ones are kept in blocks
  bool normalizes_halves = false;  // two halves of the batch, each by itself
  int64_t norm_groups = 0;         // of batch normalization
  int64_t channel_block = compiler::kWideBlock;
};

Tensor Norm(Tensor x, const std::string& name, const CnnOptions& options) {
  if (!options.normalizes_halves) {
    return BatchNormLayer(x, {.name = name, .groups = options.norm_groups});
  }
  const Shape shape = x.shape();
  std::vector<Tensor> halves = Split(x, {shape[0] / 2, shape[0] / 2}, 0);
  LogicalGraph& graph = *x.graph();
  const NameScope scope(graph, name);
  VariableOptions variable = {.name = "gamma", .dtype = x.dtype(), .shape = {shape[1]}};
  variable.init = "ones";
  const Tensor gamma = GetVariable(graph, variable);
  variable.name = "beta";
  variable.init = "zeros";
  const Tensor beta = GetVariable(graph, variable);
  for (Tensor& half : halves) half = BatchNormTraining(half, gamma, beta).y;
  return Concat(halves, 0);
}

void TrainCnn(Job& job, const CnnOptions& options) {
  auto [image, label] =
      job.Read(DrawnDigits({.count = 120}),
               {.batch = 12, .shuffle = true, .name = "train", .dtype = options.dtype});
  Tensor x = Reshape(image, {12, 1, 28, 28});
  x = ConvLayer(x, options.is_wide ? 32 : 6,
                {.name = "conv1", .kernel = {3}, .strides = {2}, .padding = {1}, .bias = false});
  x = Relu(Norm(x, "norm1", options));
  x = MaxPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
  ConvLayerOptions second = {.name = "conv2", .kernel = {3}, .padding = {1}, .bias = false};
  if (options.splits_channels) second.weight = sbp::S(0);
  const int64_t features = options.is_wide ? 64 : 8;
  x = Relu(Norm(ConvLayer(x, features, second), "norm2", options));
  if (options.is_wide) {
    const Tensor y =
        ConvLayer(x, features, {.name = "conv3", .kernel = {3}, .padding = {1}, .bias = false});
    x = AvgPool(x + Norm(y, "norm3", options), {.kernel = {2}});
  }
  x = ConvLayer(x, features,
                {.name = "depthwise", .kernel = {3}, .padding = {1}, .groups = features});
  x = Linear(Flatten(GlobalAvgPool(Relu(x))), 10, {.name = "out"});
  const Tensor loss = Mean(SoftmaxCrossEntropy(x, label));
  job.Minimize(loss, Sgd{.lr = 0.05, .momentum = 0.9}, {.micro_batches = options.micro_batches});
  job.Fetch("loss", loss);
}

TrainingRun Train(const LayoutCase& layout, const CnnOptions& options, int64_t steps) {
  const auto run = RunTraining({.layout = layout,
                                .steps = steps,
                                .wants_variables = true,
                                .precision = options.precision,
                                .channel_block = options.channel_block},
                               [&](Job& job) { TrainCnn(job, options); });
  EXPECT_TRUE(run.ok()) << layout.name << ": " << run.status().message();
  return run.ok() ? *run : TrainingRun();
}

void ExpectSame(const TrainingRun& run, const TrainingRun& reference, double tolerance) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (size_t i = 0; i < run.losses.size(); ++i) {
    ASSERT_NEAR(run.losses[i], reference.losses[i], tolerance * std::abs(reference.losses[i]))
        << "step " << i;
  }
}

// `kind` has what is not said otherwise.
void ExpectLayoutsAgree(CnnOptions kind, int64_t steps, double tolerance) {
  for (int micro_batches : {1, 2}) {
    CnnOptions options = kind;
    options.micro_batches = micro_batches;
    const TrainingRun reference = Train({}, options, steps);
    ASSERT_EQ(static_cast<int64_t>(reference.losses.size()), steps);
    if (steps >= 200) {  // it does learn
      const auto middle = reference.losses.begin() + steps / 2;
      EXPECT_LT(std::accumulate(middle, reference.losses.end(), 0.0),
                0.9 * std::accumulate(reference.losses.begin(), middle, 0.0));
    }
    for (const LayoutCase& layout : {LayoutCase{"3", {3}}, LayoutCase{"2x2", {2, 2}}}) {
      for (bool splits_channels : {false, true}) {
        SCOPED_TRACE(layout.name + (splits_channels ? ", channels split" : "") + ", " +
                     std::to_string(micro_batches) + " micro-batches");
        CnnOptions split = options;
        split.splits_channels = splits_channels;
        ExpectSame(Train(layout, split, steps), reference, tolerance);
      }
    }
  }
}

TEST(CnnTest, F64LossesEqualOneDevice) { ExpectLayoutsAgree({.dtype = DType::kF64}, 200, 1e-9); }

TEST(CnnTest, F32LossesEqualOneDevice) { ExpectLayoutsAgree({.dtype = DType::kF32}, 50, 1e-4); }

TEST(CnnTest, BlocksOfChannelsEqualOneDevice) {
  for (const int64_t block : {compiler::kNarrowBlock, compiler::kWideBlock}) {
    SCOPED_TRACE(block);
    ExpectLayoutsAgree({.dtype = DType::kF32, .is_wide = true, .channel_block = block}, 20, 1e-4);
  }
}

TEST(CnnTest, BlocksAreAsTheSessionSays) {
  for (const int64_t block : {8, 16}) {
    const auto session = Session::Start({.channel_block = block, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status().message();
    const auto job = (*session)->Compile(
        "train", [](Job& job) { TrainCnn(job, {.dtype = DType::kF32, .is_wide = true}); });
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_NE(job->Explain().find(absl::StrCat("channel_block=", block, " ")), std::string::npos);
  }
  const auto wrong = Session::Start({.channel_block = 12, .progress = Progress::kOff}).status();
  EXPECT_EQ(wrong.message(),
            "--channel_block=12; 8 or 16 channels were expected, or 0 for what the CPU likes best");
}

TEST(CnnTest, WinogradIsAsTheSessionSays) {
  for (bool winograd : {true, false}) {
    const auto session = Session::Start({.winograd = winograd, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status().message();
    const auto job = (*session)->Compile(
        "train", [](Job& job) { TrainCnn(job, {.dtype = DType::kF32, .is_wide = true}); });
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_EQ(job->Explain().find("winograd=true") != std::string::npos, winograd);
  }
}

// Only f32 is kept in blocks: from the same weights, plain f64 goes the same way.
TEST(CnnTest, BlocksOfChannelsEqualPlainChannels) {
  std::vector<std::vector<double>> losses;
  std::vector<std::pair<std::string, Array>> weights, trained;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const auto session = Session::Start({.seed = 3, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status().message();
    auto job = (*session)->Compile(
        "train", [&](Job& job) { TrainCnn(job, {.dtype = dtype, .is_wide = true}); });
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_EQ(job->Explain().find("blocked_inputs") != std::string::npos, dtype == DType::kF32);
    if (dtype == DType::kF32) {
      for (const std::string& name : (*session)->variables()) {
        weights.emplace_back(name, *(*session)->Get(name));
      }
    }
    for (const auto& [name, value] : weights) {
      const bool is_wide = (*session)->Get(name)->dtype() == DType::kF64;
      ASSERT_TRUE((*session)->Set(name, is_wide ? value.As(DType::kF64) : value).ok()) << name;
    }
    const auto result = job->Run({.steps = 3});
    ASSERT_TRUE(result.ok()) << result.status().message();
    losses.push_back(result->Scalars("loss"));
    for (const auto& [name, value] : weights) {
      const Array now = (*session)->Get(name)->As(DType::kF64);
      if (dtype == DType::kF32) {
        trained.emplace_back(name, now);
        continue;
      }
      const auto same =
          std::find_if(trained.begin(), trained.end(),
                       [&name = name](const auto& other) { return other.first == name; });
      const auto f32 = same->second.data<double>(), f64 = now.data<double>();
      double norm = 0, difference = 0;
      for (size_t i = 0; i < f64.size(); ++i) {
        norm += f64[i] * f64[i];
        difference += (f64[i] - f32[i]) * (f64[i] - f32[i]);
      }
      EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << name;
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-5 * losses[1][i]);
}

// bf16 keeps 8 bits of an operand; sums are in f32.
TEST(CnnTest, Bf16ConvolutionsTrainAsF32Do) {
  for (bool is_wide : {false, true}) {
    const CnnOptions wide = {.dtype = DType::kF32, .is_wide = is_wide};
    CnnOptions narrow = wide;
    narrow.precision = DType::kBF16;
    const TrainingRun f32 = Train({}, wide, 20), bf16 = Train({}, narrow, 20);
    ExpectSame(bf16, f32, 0.05);
    EXPECT_GT(std::abs(bf16.losses.at(5) - f32.losses.at(5)), 1e-6) << "nothing was narrowed";
    ExpectSame(Train({"2x2", {2, 2}}, narrow, 5), Train({}, narrow, 5), 0.01);
  }
}

// Cut in two, a batch is normalized as two batches; the running statistics take the mean.
TEST(CnnTest, StatisticsAreThoseOfEachMicroBatch) {
  const TrainingRun cut = Train({}, {.micro_batches = 2}, 20);
  const TrainingRun halves = Train({}, {.normalizes_halves = true}, 20);
  const TrainingRun whole = Train({}, {}, 20);
  ExpectSame(cut, halves, 1e-10);
  ASSERT_EQ(cut.losses.size(), whole.losses.size());
  EXPECT_GT(std::abs(cut.losses.back() - whole.losses.back()), 1e-6);
  // The first layer's running mean does not depend on how the batch was cut, in the first step.
  const auto running_mean = [](const TrainingRun& run) {
    for (const auto& [name, value] : run.variables) {
      if (name == "norm1.running_mean") return value.As(DType::kF64).data<double>()[0];
    }
    return std::nan("");
  };
  const double one = running_mean(Train({}, {}, 1));
  EXPECT_NE(one, 0);
  EXPECT_NEAR(running_mean(Train({}, {.micro_batches = 2}, 1)), one, 1e-12);
  EXPECT_NEAR(running_mean(Train({"2x2", {2, 2}}, {}, 1)), one, 1e-12);
}

// Groups are batches of their own, on whatever devices: 12 are whole on each of 3 and 4; 2 are not,
// and are brought together.
TEST(CnnTest, GroupsAreNormalizedByThemselves) {
  ExpectSame(Train({}, {.norm_groups = 2}, 20), Train({}, {.normalizes_halves = true}, 20), 1e-10);
  for (bool is_wide : {false, true}) {
    for (int64_t groups : {2, 12}) {
      const CnnOptions options = {
          .dtype = is_wide ? DType::kF32 : DType::kF64, .is_wide = is_wide, .norm_groups = groups};
      const TrainingRun reference = Train({}, options, 20);
      for (const LayoutCase& layout :
           {LayoutCase{"1", {1}}, LayoutCase{"3", {3}}, LayoutCase{"2x2", {2, 2}}}) {
        for (int micro_batches : {1, 2}) {
          SCOPED_TRACE(absl::StrCat(layout.name, ", ", groups, " groups, ", micro_batches,
                                    " micro-batches", is_wide ? ", wide" : ""));
          CnnOptions cut = options;
          cut.micro_batches = micro_batches;
          ExpectSame(Train(layout, cut, 20), reference, is_wide ? 1e-4 : 1e-9);
        }
      }
    }
  }
}

// Where a device's images are whole groups, nothing waits for statistics of other devices.
TEST(CnnTest, WholeGroupsExchangeNoStatistics) {
  const auto session = Session::Start({.devices = {1, 1}, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status().message();
  for (int64_t groups : {0, 2, 4}) {
    auto job = (*session)->Compile(absl::StrCat("train", groups),
                                   [&](Job& job) { TrainCnn(job, {.norm_groups = groups}); });
    ASSERT_TRUE(job.ok()) << job.status().message();
    const std::string plan = job->Explain();
    for (const char* statistics :
         {"norm1.channel_sum", "norm1.batch_moment", "norm1.batch_norm.grad.batch_norm_sums:0"}) {
      const bool is_moved = plan.find(absl::StrCat("boxing ", statistics, " from")) != plan.npos;
      EXPECT_EQ(is_moved, groups == 0) << groups << " groups, " << statistics;
    }
  }
}

// What a job that trains and one that evaluates make of [4, 2, 3] through a layer, one after the
// other. `follows_jobs`: the layers are not told which of the two their job is.
std::vector<Array> TrainAndEvaluate(bool follows_jobs) {
  const auto session = Session::Start({.seed = 3, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status().message();
  std::vector<double> numbers(24);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i));
  const Array x = Array::FromVector<double>({4, 2, 3}, numbers);
  std::vector<Array> results;
  for (const bool is_training : {true, false}) {
    auto job = (*session)->Compile(is_training ? "train" : "evaluate", [=](Job& job) {
      BatchNormLayerOptions options = {.momentum = 1};
      if (!follows_jobs) options.training = is_training;
      if (follows_jobs && is_training) job.SetTraining(true);
      job.Fetch("y", BatchNormLayer(job.Input("x", {4, 2, 3}, DType::kF64), options));
    });
    EXPECT_TRUE(job.ok()) << job.status().message();
    const auto result = job->Run({.steps = 1, .feeds = {{"x", x}}});
    EXPECT_TRUE(result.ok()) << result.status().message();
    results.push_back(result->Last("y"));
    results.push_back(*(*session)->Get("norm.running_mean"));
    results.push_back(*(*session)->Get("norm.running_variance"));
  }
  return results;
}

// A job that evaluates reads the running statistics that training left.
TEST(CnnTest, RunningStatisticsAreUsedForEvaluation) {
  const std::vector<Array> results = TrainAndEvaluate(/*follows_jobs=*/false);
  // With momentum 1 they are the batch's, but for the unbiased variance: 12 elements per channel.
  const std::span<const double> trained = results[0].data<double>();
  const std::span<const double> evaluated = results[3].data<double>();
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(evaluated[i], trained[i] * std::sqrt(11.0 / 12), 1e-4);
  }
}

TEST(CnnTest, BatchNormFollowsItsJob) {
  const std::vector<Array> told = TrainAndEvaluate(/*follows_jobs=*/false);
  const std::vector<Array> follows = TrainAndEvaluate(/*follows_jobs=*/true);
  for (size_t i = 0; i < told.size(); ++i) {
    const std::span<const double> a = told[i].data<double>(), b = follows[i].data<double>();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << i;
  }
}

}  // namespace
}  // namespace braid
