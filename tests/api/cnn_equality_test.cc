// A small convolutional network: any layout gives the numbers of one device, and batch statistics
// are those of each micro-batch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

struct CnnOptions {
  DType dtype = DType::kF64;
  int micro_batches = 1;
  bool splits_channels = false;    // of the second convolution, over all devices
  bool normalizes_halves = false;  // two halves of the batch, each by itself
};

Tensor Norm(Tensor x, const std::string& name, const CnnOptions& options) {
  if (!options.normalizes_halves) return BatchNormLayer(x, {.name = name});
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
  x = ConvLayer(x, 6,
                {.name = "conv1", .kernel = {3}, .strides = {2}, .padding = {1}, .bias = false});
  x = Relu(Norm(x, "norm1", options));
  x = MaxPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
  ConvLayerOptions second = {.name = "conv2", .kernel = {3}, .padding = {1}, .bias = false};
  if (options.splits_channels) second.weight = sbp::S(0);
  x = Relu(Norm(ConvLayer(x, 8, second), "norm2", options));
  x = ConvLayer(x, 8, {.name = "depthwise", .kernel = {3}, .padding = {1}, .groups = 8});
  x = Linear(Flatten(GlobalAvgPool(Relu(x))), 10, {.name = "out"});
  const Tensor loss = Mean(SoftmaxCrossEntropy(x, label));
  job.Minimize(loss, Sgd{.lr = 0.05, .momentum = 0.9}, {.micro_batches = options.micro_batches});
  job.Fetch("loss", loss);
}

TrainingRun Train(const LayoutCase& layout, const CnnOptions& options, int64_t steps) {
  const auto run = RunTraining({.layout = layout, .steps = steps, .wants_variables = true},
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

void ExpectLayoutsAgree(DType dtype, int64_t steps, double tolerance) {
  for (int micro_batches : {1, 2}) {
    const CnnOptions options = {.dtype = dtype, .micro_batches = micro_batches};
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

TEST(CnnTest, F64LossesEqualOneDevice) { ExpectLayoutsAgree(DType::kF64, 200, 1e-9); }

TEST(CnnTest, F32LossesEqualOneDevice) { ExpectLayoutsAgree(DType::kF32, 50, 1e-4); }

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

// A job that evaluates reads the running statistics that training left.
TEST(CnnTest, RunningStatisticsAreUsedForEvaluation) {
  const auto session = Session::Start({.seed = 3, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto compile = [&](const char* name, bool is_training) {
    return (*session)->Compile(name, [is_training](Job& job) {
      const Tensor x = job.Input("x", {4, 2, 3}, DType::kF64);
      const Tensor y = BatchNormLayer(x, {.momentum = 1, .training = is_training});
      job.Fetch("y", y);
    });
  };
  auto train = compile("train", true);
  ASSERT_TRUE(train.ok()) << train.status().message();
  auto evaluate = compile("evaluate", false);
  ASSERT_TRUE(evaluate.ok()) << evaluate.status().message();
  std::vector<double> numbers(24);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i));
  const Array x = Array::FromVector<double>({4, 2, 3}, numbers);
  const auto trained = train->Run({.steps = 1, .feeds = {{"x", x}}});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  const auto evaluated = evaluate->Run({.steps = 1, .feeds = {{"x", x}}});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status().message();
  // With momentum 1 they are the batch's, but for the unbiased variance: 12 elements per channel.
  const Array a = trained->Last("y"), b = evaluated->Last("y");
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(b.data<double>()[i], a.data<double>()[i] * std::sqrt(11.0 / 12), 1e-4);
  }
}

}  // namespace
}  // namespace braid
