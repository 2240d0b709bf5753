#include "tests/api/training_case.h"

#include <fstream>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/base/philox.h"
#include "tests/runtime/temp_dir.h"

namespace braid {

using examples::Parallel;

std::vector<LayoutCase> LayoutCases() {
  const std::vector<std::pair<std::string, std::vector<int>>> clusters = {
      {"2", {2}},      {"3", {3}},      {"4", {4}},
      {"2x1", {1, 1}}, {"2x2", {2, 2}}, {"4x1", {1, 1, 1, 1}},
      {"1+2", {1, 2}}};
  const std::vector<std::pair<std::string, Parallel>> ways = {{"data", Parallel::kData},
                                                              {"model", Parallel::kModel},
                                                              {"hybrid", Parallel::kHybrid},
                                                              {"pipeline", Parallel::kPipeline}};
  std::vector<LayoutCase> cases = {{"1x1", {1}, Parallel::kData}};
  for (const auto& [way, parallel] : ways) {
    for (const auto& [cluster, devices] : clusters) {
      if (parallel == Parallel::kHybrid && cluster == "1+2") continue;  // not rectangular
      cases.push_back({way + " on " + cluster, devices, parallel});
    }
  }
  return cases;
}

examples::MnistOptions SmallMnist(Parallel parallel, DType dtype) {
  examples::MnistOptions options;
  options.parallel = parallel;
  options.dtype = dtype;
  options.train = DrawnDigits({.count = 300});
  options.test = DrawnDigits({.first = 300, .count = 100});
  options.batch = 24;
  options.hidden = 30;
  return options;
}

examples::GptOptions SmallGpt(Parallel parallel, DType dtype, const std::string& text_file) {
  examples::GptOptions options;
  options.parallel = parallel;
  options.dtype = dtype;
  options.context = 8;
  options.train = TextFile(text_file, {.context = options.context, .windows = TextWindows::kEvery});
  options.held_out = TextFile(text_file, {.context = options.context, .begin = 0.5});
  options.vocabulary = 16;
  options.layers = 2;
  options.width = 16;
  options.heads = 4;
  options.batch = 8;
  options.steps = 300;
  options.warmup_steps = 5;
  return options;
}

void TrainSmallImages(Job& job, DType dtype, int micro_batches) {
  auto [image, label] = job.Read(DrawnDigits({.count = 96}),
                                 {.batch = 12, .shuffle = true, .name = "train", .dtype = dtype});
  const auto conv = [](Tensor of, int64_t features, const char* name, int64_t stride) {
    return ConvLayer(
        of, features,
        {.name = name, .kernel = {3}, .strides = {stride}, .padding = {1}, .bias = false});
  };
  Tensor x = conv(Reshape(image, {12, 1, 28, 28}), 8, "first", 2);
  x = Relu(BatchNormLayer(x, {.name = "first_norm"}));
  x = MaxPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
  Tensor y = Relu(BatchNormLayer(conv(x, 8, "second", 1), {.name = "second_norm"}));
  y = BatchNormLayer(conv(y, 8, "third", 1), {.name = "third_norm"});
  x = Relu(x + y);
  x = Linear(Flatten(GlobalAvgPool(x)), 10, {.name = "out"});
  const Tensor loss = Mean(SoftmaxCrossEntropy(x, label));
  job.Minimize(loss, Sgd{.lr = 0.05, .momentum = 0.9}, {.micro_batches = micro_batches});
  job.Fetch("loss", loss);
}

std::unique_ptr<Session> StartOrDie(SessionOptions options) {
  options.progress = Progress::kOff;
  auto session = Session::Start(std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().message();
  return *std::move(session);
}

void ExpectFeedsComeBackAsFetches(Session& session) {
  auto job = session.Compile("double", [](Job& job) {
    job.Fetch("y", job.Input("x", {5, 2}) * 2.0);
  });
  ASSERT_TRUE(job.ok()) << job.status().message();
  for (int run = 0; run < 3; ++run) {
    const Array x = Array::FromVector<float>({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    const auto result = job->Run({.steps = 4, .feeds = {{"x", x}}});
    ASSERT_TRUE(result.ok()) << result.status().message();
    for (const Array& value : result->Values("y")) {
      for (int i = 0; i < 10; ++i) EXPECT_EQ(value.data<float>()[i], 2 * i);
    }
  }
}

std::string TestFolder() {
  static const TempDir folder;
  return folder.path();
}

std::string MakeTextFile() {
  const std::string path = TestFolder() + "/words.txt";
  const std::vector<std::string> words = {"abba ", "cable ", "deed ",  "field ",
                                          "gala ", "hide ",  "ideal ", "jail "};
  const RandomKey key = MakeRandomKey(7, "words", 0);
  std::ofstream file(path);
  // Every character of the vocabulary occurs: 16 distinct ones with the line's end.
  file << "abcdefghijkl .,\n";
  for (int i = 0; i < 600; ++i) file << words[Uint32At(key, i) % words.size()];
  return path;
}

absl::StatusOr<TrainingRun> RunTraining(const TrainingOptions& options,
                                        const std::function<void(Job&)>& record) {
  SessionOptions session_options;
  session_options.devices = options.layout.devices;
  session_options.node_kinds = options.node_kinds;
  session_options.device_kinds = options.device_kinds;
  session_options.dataset_kinds = options.dataset_kinds;
  session_options.simulation_seed = options.simulation_seed;
  session_options.precision = options.precision;
  session_options.channel_block = options.channel_block;
  session_options.seed = 3;
  session_options.progress = Progress::kOff;
  BRAID_ASSIGN_OR_RETURN(const auto session, Session::Start(session_options));
  BRAID_ASSIGN_OR_RETURN(CompiledJob job, session->Compile("train", record));
  TrainingRun run;
  if (options.steps > 0) {
    BRAID_ASSIGN_OR_RETURN(const RunResult result, job.Run({.steps = options.steps}));
    run.losses = result.Scalars("loss");
  }
  if (options.wants_variables) {
    for (const std::string& name : session->variables()) {
      BRAID_ASSIGN_OR_RETURN(Array value, session->Get(name));
      run.variables.emplace_back(name, std::move(value));
    }
  }
  return run;
}

}  // namespace braid
