#include "examples/wide_deep_model.h"

#include <functional>
#include <string>
#include <vector>

namespace examples {
namespace {

using braid::DType;
using braid::Job;
using braid::NameScope;
using braid::Tensor;
using namespace braid::sbp;

constexpr int64_t kKinds = 16;  // of categories: what is crossed is kinds of two fields

struct Clicks {
  std::vector<Tensor> bags;  // i32 [batch, bag] for each field
  Tensor cross;              // i32 [batch, 1]: kinds of the first categories of two fields
  Tensor numbers;            // [batch, numbers]
  Tensor label;              // [batch, 1]: 1 of a click, else 0
  Tensor likelihood;         // by which the label was drawn
};

Tensor First(Tensor bag) { return SliceAxis(bag, 1, {.end = 1}); }

// New samples every step. Users like some categories (sines stand for tastes), some pairs of kinds,
// and numbers that have one sign.
Clicks MakeUpClicks(Job& job, const char* name, const WideDeepOptions& options) {
  braid::LogicalGraph& graph = job.graph();
  const NameScope scope(graph, name);
  Clicks clicks;
  Tensor score = Constant(graph, -0.5);
  for (int64_t field = 0; field < options.fields; ++field) {
    const double last = static_cast<double>(options.rows - 1);
    // Squared: few categories are common, many are rare.
    const Tensor drawn = Square(RandomUniform(graph, {options.batch, options.bag}));
    clicks.bags.push_back(Clip(Cast(drawn * (last + 1), DType::kI32), 0, last));
    const Tensor taste = Sin(Cast(clicks.bags.back(), DType::kF32) * (1.7 + 0.3 * field));
    score = score + ReduceSum(taste, {.axes = {1}, .keep_dims = true});
  }
  const Tensor kinds = Constant(graph, kKinds, {.dtype = DType::kI32});
  clicks.cross = Mod(First(clicks.bags[0]), kinds) * kinds + Mod(First(clicks.bags[1]), kinds);
  score = score + 2 * Sin(Cast(clicks.cross, DType::kF32) * 2.3);
  clicks.numbers = RandomNormal(graph, {options.batch, options.numbers});
  const Tensor sign = Sign(ReduceProd(SliceAxis(clicks.numbers, 1, {.end = 2}), {.axes = {1}}));
  clicks.likelihood = Sigmoid(score + 2 * ExpandDims(sign, 1));
  const Tensor is_click = Less(RandomUniform(graph, {options.batch, 1}), clicks.likelihood);
  clicks.label = Cast(is_click, options.dtype);
  clicks.numbers = Cast(clicks.numbers, options.dtype);
  return clicks;
}

// Those that serve the tables, the second half; the others are workers.
int NumServers(Job& job) { return job.devices().size() / 2; }

// Rows of a table for each bag, added up: [batch, columns].
Tensor Bag(Job& job, Tensor bag, const std::string& name, int64_t rows, int64_t columns,
           const WideDeepOptions& options) {
  braid::VariableOptions table = {.name = name, .dtype = options.dtype, .shape = {rows, columns}};
  if (columns > 1) {
    table.init = "normal";
    table.stddev = 0.05;
  }
  // Each device looks up what it has; the sums of all are the bags.
  if (options.parallel == Parallel::kModel) table.sbp = S(0);
  if (options.parallel == Parallel::kHybrid) table.sbp = braid::NdSbp{B, S(0)};
  if (!options.has_servers) return EmbeddingBag(GetVariable(*bag.graph(), table), bag);
  table.sbp = S(0);
  const int servers = NumServers(job);
  return job.On(job.devices().Slice(job.devices().size() - servers, servers),
                [&] { return EmbeddingBag(GetVariable(*bag.graph(), table), bag); });
}

// The logit of a click: what is known of single categories and pairs of kinds, and what a network
// makes of their embeddings and of the numbers.
Tensor WideDeep(Job& job, const Clicks& clicks, const WideDeepOptions& options) {
  Tensor wide = Bag(job, clicks.cross, "wide.cross", kKinds * kKinds, 1, options);
  std::vector<Tensor> deep = {clicks.numbers};
  for (int64_t field = 0; field < options.fields; ++field) {
    const std::string name = absl::StrFormat("field_%d", field);
    const Tensor bag = clicks.bags[field];
    wide = wide + Bag(job, bag, "wide." + name, options.rows, 1, options);
    deep.push_back(Bag(job, bag, "deep." + name, options.rows, options.columns, options));
  }
  Tensor x = Concat(deep, 1);
  x = Relu(Linear(x, options.hidden, {.name = "deep.fc1"}));
  x = Relu(Linear(x, options.hidden, {.name = "deep.fc2"}));
  return wide + Linear(x, 1, {.name = "deep.out"});
}

// Records `fn` on the devices that are no servers.
void OnWorkers(Job& job, const WideDeepOptions& options, const std::function<void()>& fn) {
  if (!options.has_servers) return OnDevices(job, options.parallel, fn);
  const int devices = job.devices().size(), servers = NumServers(job);
  if (servers == 0) {
    job.graph().Fail(absl::InvalidArgumentError(
        "the tables are to be on servers, and there is 1 device; at least 2 were expected, e.g. "
        "--devices=cpu:2"));
    return;
  }
  job.On(job.devices().Slice(0, devices - servers), fn);
}

bool HasTwoFields(Job& job, const WideDeepOptions& options) {
  if (options.fields >= 2 && options.numbers >= 2) return true;
  job.graph().Fail(absl::InvalidArgumentError(absl::StrFormat(
      "%d fields and %d numbers; two of each at least were expected: the rule of the made-up "
      "clicks joins two",
      options.fields, options.numbers)));
  return false;
}

}  // namespace

void TrainWideDeep(Job& job, const WideDeepOptions& options) {
  if (!HasTwoFields(job, options)) return;
  OnWorkers(job, options, [&] {
    const Clicks clicks = MakeUpClicks(job, "train", options);
    const Tensor loss = BinaryCrossEntropyWithLogits(WideDeep(job, clicks, options), clicks.label);
    job.Minimize(loss, braid::Adagrad{.lr = options.lr});
    job.Fetch("loss", loss);
  });
}

void EvaluateWideDeep(Job& job, const WideDeepOptions& options) {
  if (!HasTwoFields(job, options)) return;
  OnWorkers(job, options, [&] {
    const Clicks clicks = MakeUpClicks(job, "held_out", options);
    const auto agrees = [&](Tensor x, double threshold) {
      const Tensor bound = Constant(job.graph(), threshold, {.dtype = x.dtype()});
      return Mean(Equal(Cast(Greater(x, bound), options.dtype), clicks.label));
    };
    job.Fetch("accuracy", agrees(WideDeep(job, clicks, options), 0));
    job.Fetch("possible", agrees(clicks.likelihood, 0.5));
  });
}

}  // namespace examples
