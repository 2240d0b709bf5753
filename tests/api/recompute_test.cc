// Blocks whose values the backward pass computes once more: the same bits, in less memory.
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;

struct GptCase {
  bool recomputes = false;
  Parallel parallel = Parallel::kData;
  double dropout = 0.1;
  int micro_batches = 1;
  int64_t layers = 2, width = 16, context = 8, batch = 8;
};

Tensor Block(Tensor x, const GptCase& gpt) {
  const int64_t width = x.shape()[2];
  std::optional<NdSbp> columns, rows;
  if (gpt.parallel == Parallel::kHybrid) {
    columns = NdSbp{sbp::B, sbp::S(1)};
    rows = NdSbp{sbp::B, sbp::S(0)};
  }
  const auto drop = [&](Tensor y) { return gpt.dropout > 0 ? Dropout(y, gpt.dropout) : y; };
  x = x +
      drop(Attention(LayerNormLayer(x, {.name = "norm1"}),
                     {.heads = 4, .dropout = gpt.dropout, .projection = columns, .output = rows}));
  Tensor y = LayerNormLayer(x, {.name = "norm2"});
  y = Gelu(Linear(y, 4 * width, {.name = "fc", .weight = columns}), {.approximate = true});
  return x + drop(Linear(y, width, {.name = "proj", .weight = rows}));
}

void TrainGpt(Job& job, const GptCase& gpt, const std::string& text) {
  const bool is_pipeline = gpt.parallel == Parallel::kPipeline;
  const auto stages = examples::PipelineStages(job.devices(), 2);
  const auto on_stage = [&](int64_t stage, const std::function<Tensor()>& fn) {
    return is_pipeline ? job.On(stages[stage], fn) : fn();
  };
  constexpr int64_t kVocabulary = 16;
  auto [input, target] =
      job.Read(TextFile(text, {.context = gpt.context, .windows = TextWindows::kEvery}),
               {.batch = gpt.batch, .shuffle = true});
  Tensor x = on_stage(0, [&, tokens = input] {
    return EmbeddingLayer(tokens, kVocabulary, gpt.width, {.name = "tokens", .stddev = 0.25});
  });
  for (int64_t layer = 0; layer < gpt.layers; ++layer) {
    const NameScope scope(job.graph(), absl::StrCat("h.", layer));
    const auto block = [&] { return Block(x, gpt); };
    x = on_stage(2 * layer / gpt.layers,
                 [&] { return gpt.recomputes ? job.Recompute(block) : block(); });
  }
  const Tensor loss = on_stage(1, [&, labels = target] {
    x = Linear(LayerNormLayer(x, {.name = "norm"}), kVocabulary, {.name = "head", .bias = false});
    return Mean(SoftmaxCrossEntropy(x, labels));
  });
  job.Minimize(loss, AdamW{.lr = 1e-2}, {.micro_batches = gpt.micro_batches});
  job.Fetch("loss", loss);
}

void TrainCnn(Job& job, bool recomputes, int micro_batches, DType dtype = DType::kF32) {
  auto [image, label] = job.Read(DrawnDigits({.count = 120}),
                                 {.batch = 12, .shuffle = true, .name = "train", .dtype = dtype});
  Tensor x = Reshape(image, {12, 1, 28, 28});
  const auto stage = [&](const char* name, int64_t features) {
    const auto layers = [&] {
      const NameScope scope(job.graph(), name);
      const Tensor y = ConvLayer(x, features, {.strides = {2}, .padding = {1}, .bias = false});
      return MaxPool(Relu(BatchNormLayer(y)), {.kernel = {2}});
    };
    x = recomputes ? job.Recompute(layers) : layers();
  };
  stage("first", 6);
  stage("second", 8);
  const Tensor logits = Linear(Flatten(GlobalAvgPool(x)), 10, {.name = "out"});
  const Tensor loss = Mean(SoftmaxCrossEntropy(logits, label));
  job.Minimize(loss, Sgd{.lr = 0.05, .momentum = 0.9}, {.micro_batches = micro_batches});
  job.Fetch("loss", loss);
}

void ExpectSameBits(const LayoutCase& layout, const std::function<void(Job&, bool)>& record) {
  std::vector<TrainingRun> runs;
  for (const bool recomputes : {false, true}) {
    const auto run = RunTraining({.layout = layout, .steps = 20, .wants_variables = true},
                                 [&](Job& job) { record(job, recomputes); });
    ASSERT_TRUE(run.ok()) << run.status().message();
    runs.push_back(*run);
  }
  EXPECT_EQ(runs[0].losses, runs[1].losses);
  EXPECT_LT(runs[0].losses.back(), runs[0].losses.front());
  ASSERT_EQ(runs[0].variables.size(), runs[1].variables.size());
  for (size_t i = 0; i < runs[0].variables.size(); ++i) {
    const auto& [name, value] = runs[0].variables[i];
    const auto& [other_name, other] = runs[1].variables[i];
    ASSERT_EQ(name, other_name);
    EXPECT_EQ(std::memcmp(value.bytes(), other.bytes(), value.num_bytes()), 0) << name;
  }
}

TEST(RecomputeTest, GptHasTheSameBits) {
  const std::string text = MakeTextFile();
  const std::vector<LayoutCase> layouts = {
      {"one device", {1}, Parallel::kData},        {"three devices", {3}, Parallel::kData},
      {"data on 2x2", {2, 2}, Parallel::kData},    {"hybrid on 2x2", {2, 2}, Parallel::kHybrid},
      {"pipeline on 2", {2}, Parallel::kPipeline}, {"pipeline on 2x2", {2, 2}, Parallel::kPipeline},
  };
  for (const LayoutCase& layout : layouts) {
    for (const int micro_batches : {1, 4}) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", ", micro_batches, " micro-batches"));
      ExpectSameBits(layout, [&](Job& job, bool recomputes) {
        examples::OnDevices(job, layout.parallel, [&] {
          TrainGpt(job,
                   {.recomputes = recomputes,
                    .parallel = layout.parallel,
                    .micro_batches = micro_batches},
                   text);
        });
      });
    }
  }
}

// Also what a step does to the running statistics, which is done once.
TEST(RecomputeTest, BatchNormHasTheSameBits) {
  for (const LayoutCase& layout : {LayoutCase{"one device", {1}}, LayoutCase{"3", {3}}}) {
    for (const int micro_batches : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", ", micro_batches, " micro-batches"));
      ExpectSameBits(layout,
                     [&](Job& job, bool recomputes) { TrainCnn(job, recomputes, micro_batches); });
    }
  }
}

// Between nodes, small sums travel together, and an element's place among them decides the order in
// which its addends are added. Where the block itself exchanges sums, as batch normalisation does,
// others travel together.
TEST(RecomputeTest, BatchNormOverNodesDiffersByTheOrderOfSums) {
  std::vector<TrainingRun> runs;
  for (const bool recomputes : {false, true}) {
    const auto run = RunTraining({.layout = {"2x2", {2, 2}}, .steps = 100}, [&](Job& job) {
      TrainCnn(job, recomputes, /*micro_batches=*/1, DType::kF64);
    });
    ASSERT_TRUE(run.ok()) << run.status().message();
    runs.push_back(*run);
  }
  for (size_t i = 0; i < runs[0].losses.size(); ++i) {
    EXPECT_NEAR(runs[1].losses[i], runs[0].losses[i], 1e-11 * runs[0].losses[i]) << "step " << i;
  }
}

// Values inside a block, and their gradients, are there for who asks for them.
TEST(RecomputeTest, InnerValuesCanBeFetched) {
  std::vector<std::vector<Array>> runs;
  for (const bool recomputes : {false, true}) {
    const auto session = Session::Start({.seed = 3, .progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status();
    auto job = (*session)->Compile("train", [&](Job& job) {
      const Tensor x = job.Input("x", {4, 6});
      Tensor inner;
      const auto block = [&] {
        inner = Gelu(Linear(x, 8, {.name = "fc1"}));
        return job.Recompute([&] { return Linear(Square(inner), 3, {.name = "fc2"}); });
      };
      const Tensor y = recomputes ? job.Recompute(block) : block();
      const Tensor loss = Mean(Square(y));
      job.Minimize(loss, Sgd{.lr = 0.1});
      job.Fetch("loss", loss);
      job.Fetch("inner", inner);
      job.Fetch("gradient", job.GradientOf(inner));
    });
    ASSERT_TRUE(job.ok()) << job.status();
    std::vector<float> numbers(24);
    std::iota(numbers.begin(), numbers.end(), -12.0f);
    const auto result =
        job->Run({.steps = 3, .feeds = {{"x", Array::FromVector<float>({4, 6}, numbers)}}});
    ASSERT_TRUE(result.ok()) << result.status();
    runs.push_back({result->Last("loss"), result->Last("inner"), result->Last("gradient")});
  }
  for (size_t i = 0; i < runs[0].size(); ++i) {
    EXPECT_EQ(std::memcmp(runs[0][i].bytes(), runs[1][i].bytes(), runs[0][i].num_bytes()), 0) << i;
  }
}

int64_t PlannedActivations(const LayoutCase& layout, const GptCase& gpt, const std::string& text) {
  const auto session =
      Session::Start({.devices = layout.devices, .dry_run = true, .progress = Progress::kOff});
  EXPECT_TRUE(session.ok()) << session.status();
  const auto job = (*session)->Compile("train", [&](Job& job) { TrainGpt(job, gpt, text); });
  EXPECT_TRUE(job.ok()) << job.status();
  int64_t most = 0;
  for (const DeviceMemory& device : job->memory()) most = std::max(most, device.activations);
  return most;
}

TEST(RecomputeTest, DeepModelsTakeLessMemory) {
  const std::string text = MakeTextFile();
  GptCase gpt = {.layers = 12, .width = 64, .context = 64, .batch = 16};
  const auto ratio = [&](const LayoutCase& layout) {
    gpt.parallel = layout.parallel;
    gpt.recomputes = false;
    const int64_t kept = PlannedActivations(layout, gpt, text);
    gpt.recomputes = true;
    const int64_t recomputed = PlannedActivations(layout, gpt, text);
    std::cout << layout.name << ", " << gpt.micro_batches << " micro-batches: " << kept
              << " bytes kept, " << recomputed << " recomputed\n";
    return static_cast<double>(recomputed) / static_cast<double>(kept);
  };
  EXPECT_LT(ratio({"one device", {1}}), 0.35);
  EXPECT_LT(ratio({"2x2", {2, 2}}), 0.35);
  gpt.micro_batches = 4;
  EXPECT_LT(ratio({"one device", {1}}), 0.5);
  EXPECT_LT(ratio({"pipeline on 2", {2}, Parallel::kPipeline}), 0.5);
}

}  // namespace
}  // namespace braid
