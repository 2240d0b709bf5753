// One training run of an example's job on one layout of devices, for tests that compare runs.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/gpt_model.h"
#include "examples/mnist_model.h"

namespace braid {

// Devices of each node, and how the job is spread over them.
struct LayoutCase {
  std::string name;
  std::vector<int> devices = {1};
  examples::Parallel parallel = examples::Parallel::kData;
};

// 1x1 in front; then every parallelism on 2, 3 and 4 devices of one node and on 2x1, 2x2, 4x1 and
// 1+2 nodes, as far as it can be there.
std::vector<LayoutCase> LayoutCases();

// A small MLP on drawn digits, and a small GPT on a text made here.
examples::MnistOptions SmallMnist(examples::Parallel parallel, DType dtype);
examples::GptOptions SmallGpt(examples::Parallel parallel, DType dtype,
                              const std::string& text_file);
// A residual block on drawn digits: convolutions, batch norms, pooling.
void TrainSmallImages(Job& job, DType dtype, int micro_batches);
// A session without a progress bar; a failure to start is the test's, which then ends.
std::unique_ptr<Session> StartOrDie(SessionOptions options);
// A folder of this process's own, removed at its end.
std::string TestFolder();
// Words from a small grammar, a few thousand characters; the path of a file in TestFolder.
std::string MakeTextFile();

// A job whose input comes back doubled, in three Runs of four steps.
void ExpectFeedsComeBackAsFetches(Session& session);

struct TrainingRun {
  std::vector<double> losses;
  std::vector<std::pair<std::string, Array>> variables;  // if asked for
};
struct TrainingOptions {
  LayoutCase layout;
  int64_t steps = 10;
  std::optional<uint64_t> simulation_seed = std::nullopt;
  bool wants_variables = false;
  DType precision = DType::kF32;                        // SessionOptions::precision
  std::optional<int64_t> channel_block = std::nullopt;  // SessionOptions::channel_block
  // SessionOptions::node_kinds, device_kinds and dataset_kinds.
  std::vector<std::string> node_kinds = {};
  DeviceKinds device_kinds = {};
  DatasetKinds dataset_kinds = {};
};
absl::StatusOr<TrainingRun> RunTraining(const TrainingOptions& options,
                                        const std::function<void(Job&)>& record);

}  // namespace braid
