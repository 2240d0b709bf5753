#include "tests/conformance/random_graph_job.h"

#include <algorithm>

#include "tests/conformance/random_graph_layout.h"
#include "tests/conformance/random_graph_ops.h"

namespace braid::conformance {
namespace {

// Sizes of the inputs: what the seed says before anything else.
struct Sizes {
  explicit Sizes(uint64_t seed) {
    Draws draws(seed, "sizes");
    static constexpr int kBatches[] = {4, 6, 8, 12};
    static constexpr int kMicroBatches[] = {1, 1, 1, 2, 4};
    micro_batches = kMicroBatches[draws.Below(5)];
    batch = micro_batches > 1 ? micro_batches * (1 + draws.Below(3)) : kBatches[draws.Below(4)];
    if (micro_batches == 1 && draws.Chance(30)) batch = 1 + draws.Below(7);
    width = 1 + draws.Below(7);
    depth = 1 + draws.Below(5);
    classes = 2 + draws.Below(4);
  }
  int micro_batches;
  int64_t batch, width, depth, classes;
};

OptimizerSpec DrawOptimizer(Draws& draws, LogicalGraph& graph) {
  LearningRate lr = 0.02;
  if (draws.Chance(30)) lr = WarmupCosine(graph, {.peak = 0.05, .warmup_steps = 2, .steps = 10});
  switch (draws.Below(5)) {
    case 0:
      return Sgd{.lr = lr};
    case 1:
      return Sgd{.lr = lr, .momentum = 0.9, .weight_decay = 0.01};
    case 2:
      return Sgd{.lr = lr, .momentum = 0.8, .nesterov = true};
    // A gradient that is zero but for rounding must not become a step: epsilon is above the noise.
    case 3:
      return Adam{.lr = lr, .epsilon = 1e-3};
    default:
      return AdamW{.lr = lr, .epsilon = 1e-3};
  }
}

}  // namespace

int MicroBatchesOf(uint64_t seed) { return Sizes(seed).micro_batches; }

std::vector<std::pair<std::string, Array>> FeedsOf(uint64_t seed) {
  const Sizes sizes(seed);
  Draws draws(seed, "feeds");
  const auto reals = [&draws](const Shape& shape) {
    Array array(DType::kF64, shape);
    for (double& number : array.mutable_data<double>()) number = draws.Uniform(-1, 1);
    return array;
  };
  Array ids(DType::kI32, {sizes.batch});
  for (int32_t& id : ids.mutable_data<int32_t>()) id = draws.Below(static_cast<int>(sizes.classes));
  std::vector<std::pair<std::string, Array>> feeds;
  feeds.emplace_back("x", reals({sizes.batch, sizes.width}));
  feeds.emplace_back("y", reals({sizes.batch, sizes.depth, sizes.width}));
  feeds.emplace_back("ids", std::move(ids));
  return feeds;
}

void RecordRandomJob(Job& job, const RandomJob& options) {
  const Sizes sizes(options.seed);
  RandomLayout layout(options.seed, job, options.is_spread);
  RandomGraph graph(options.seed, job, layout, sizes.micro_batches > 1 ? 1 : 0);
  Draws& draws = graph.draws();

  const Tensor x = job.Input("x", {sizes.batch, sizes.width}, DType::kF64);
  const Tensor y = job.Input("y", {sizes.batch, sizes.depth, sizes.width}, DType::kF64);
  const Tensor ids = job.Input("ids", {sizes.batch}, DType::kI32);
  graph.Add(x, 1);
  graph.Add(y, 1);
  graph.AddIndices(ids, sizes.classes);
  const int moves = 4 + draws.Below(14);
  for (int i = 0; i < moves; ++i) graph.Move();

  // The loss reaches the last values and, whatever they are, variables.
  Tensor loss;
  std::vector<Tensor> terms;
  const int count = 1 + draws.Below(3);
  for (int i = 0; i < count; ++i) {
    const int late = std::min<int>(static_cast<int>(graph.reals().size()), 4);
    RealValue value = graph.reals()[graph.reals().size() - 1 - draws.Below(late)];
    if (!value.tensor.valid()) return;  // the job has the error
    if (i == 0) {
      while (value.tensor.shape().rank() < 2) {
        value.tensor = ExpandDims(value.tensor, value.tensor.shape().rank());
      }
      value = graph.Project(value, 1 + draws.Below(5));
    }
    terms.push_back(value.tensor);
    const Tensor term = Mean(Square(value.tensor));
    loss = i == 0 ? term : Add(loss, Scale(term, 0.5));
  }
  MinimizeOptions minimize = {.micro_batches = options.micro_batches};
  if (draws.Chance(30)) minimize.clip_global_norm = 0.3;
  job.Minimize(loss, DrawOptimizer(draws, job.graph()), minimize);

  job.Fetch("loss", loss);
  job.Fetch("gradient", job.GradientOf(terms[0]));
  for (int i = 0; i < 3; ++i) {
    const int n = static_cast<int>(graph.reals().size());
    job.Fetch("real" + std::to_string(i), graph.reals()[draws.Below(n)].tensor);
  }
  if (!graph.bools().empty()) job.Fetch("bool", graph.bools().back());
  job.Fetch("index", graph.indices().back().tensor);
}

}  // namespace braid::conformance
