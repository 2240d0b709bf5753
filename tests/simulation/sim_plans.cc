#include "tests/simulation/sim_plans.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/gpt_model.h"
#include "examples/mnist_model.h"
#include "glog/logging.h"
#include "runtime/base/philox.h"
#include "runtime/files/npy.h"
#include "tests/runtime/temp_dir.h"

namespace braid {
namespace {

using examples::Parallel;

constexpr int64_t kSamples = 24;
constexpr int64_t kFeatures = 6;
constexpr int64_t kClasses = 10;

template <typename T>
void PutNpy(const std::string& path, DType dtype, const Shape& shape,
            const std::vector<T>& values) {
  const auto header = FormatNpyHeader(dtype, shape);
  CHECK(header.ok()) << header.status();
  PutFile(path, *header + std::string(reinterpret_cast<const char*>(values.data()),
                                      values.size() * sizeof(T)));
}

// Points whose label is where their largest coordinate is.
DatasetSpec MakePoints(const std::string& folder) {
  const RandomKey key = MakeRandomKey(5, "points", 0);
  std::vector<float> points;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < kSamples; ++i) {
    int32_t label = 0;
    for (int64_t j = 0; j < kFeatures; ++j) {
      points.push_back(static_cast<float>(Uint32At(key, i * kFeatures + j) % 2001) / 1000 - 1);
      if (points.back() > points[i * kFeatures + label]) label = static_cast<int32_t>(j);
    }
    labels.push_back(label);
  }
  PutNpy(folder + "/points.npy", DType::kF32, {kSamples, kFeatures}, points);
  PutNpy(folder + "/labels.npy", DType::kI32, {kSamples}, labels);
  return NpyFiles({{"image", folder + "/points.npy"}, {"label", folder + "/labels.npy"}});
}

// ---- a user's own operator ---------------------------------------------------------------------

// y = x / (1 + |x|), and its gradient from x and dy.
template <typename Function>
class Pointwise final : public Kernel {
 public:
  Pointwise(int64_t n, Function function) : n_(n), function_(function) {}
  absl::Status Run(const KernelRun& run) override {
    auto* y = static_cast<float*>(run.outputs[0]);
    for (int64_t i = 0; i < n_; ++i) y[i] = function_(run.inputs, i);
    return absl::OkStatus();
  }

 private:
  const int64_t n_;
  const Function function_;
};

template <typename Function>
KernelFactory PointwiseKernel(Function function) {
  return [function](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<Pointwise<Function>>(spec.outputs[0].num_elements(), function);
  };
}

float At(void* const* inputs, int input, int64_t i) {
  return static_cast<const float*>(inputs[input])[i];
}

// Rows or columns over the devices; all inputs alike.
std::vector<SbpSignature> RowsOrColumns(const OpContext& context, int64_t) {
  std::vector<SbpSignature> signatures;
  for (int axis : {0, 1}) {
    signatures.push_back({std::vector<Sbp>(context.inputs.size(), sbp::S(axis)), {sbp::S(axis)}});
  }
  return signatures;
}

absl::Status AddSquash(OpRegistry& operators, KernelRegistry& kernels) {
  const auto like_first = [](const OpContext& context) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{context.inputs[0]};
  };
  const TensorType matrix = {DType::kF32, {3, 4}};
  BRAID_RETURN_IF_ERROR(operators.Register(OpDef("squash_gradient")
                                               .Infer(like_first)
                                               .Signatures(RowsOrColumns)
                                               .NoGradient()
                                               .Sample({.inputs = {matrix, matrix}})));
  BRAID_RETURN_IF_ERROR(operators.Register(
      OpDef("squash")
          .Infer(like_first)
          .Signatures(RowsOrColumns)
          .Gradient([](const GradientContext& context) {
            return std::vector<Tensor>{
                Apply("squash_gradient", {context.inputs[0], context.output_gradients[0]})};
          })
          .Sample({.inputs = {matrix}})));
  BRAID_RETURN_IF_ERROR(
      kernels.Register("squash", PointwiseKernel([](void* const* inputs, int64_t i) {
                         const float x = At(inputs, 0, i);
                         return x / (1 + std::abs(x));
                       })));
  return kernels.Register("squash_gradient", PointwiseKernel([](void* const* inputs, int64_t i) {
                            const float d = 1 + std::abs(At(inputs, 0, i));
                            return At(inputs, 1, i) / (d * d);
                          }));
}

void TrainSquash(Job& job, const DatasetSpec& points) {
  auto [x, label] = job.Read(points, {.batch = 6, .shuffle = true});
  Tensor h = Apply("squash", {Linear(x, 8, {.name = "fc1", .weight = sbp::S(1)})});
  h = Apply("squash", {Linear(h, 6, {.name = "fc2", .weight = sbp::S(0)})});
  const Tensor loss = Mean(SoftmaxCrossEntropy(Linear(h, kClasses, {.name = "out"}), label));
  job.Minimize(loss, Sgd{.lr = 0.1, .momentum = 0.9});
  job.Fetch("loss", loss);
}

}  // namespace

std::vector<SimPlan> MakeSimPlans(const std::string& folder) {
  const DatasetSpec points = MakePoints(folder);
  const std::string text = folder + "/words.txt";
  PutFile(text, "a bad cab, a dab, a fad.\nabba fed a decade a cab.\n");

  const auto mlp = [points](Parallel parallel, int micro_batches) {
    examples::MnistOptions options;
    options.parallel = parallel;
    options.train = points;
    options.batch = 8;
    options.micro_batches = micro_batches;
    options.hidden = 8;
    options.lr = 0.05;
    return [options](Job& job) { examples::TrainMnist(job, options); };
  };
  examples::GptOptions gpt;
  gpt.parallel = Parallel::kPipeline;
  gpt.context = 4;
  gpt.train = TextFile(text, {.context = gpt.context, .windows = TextWindows::kEvery});
  gpt.vocabulary = 10;
  gpt.layers = 2;
  gpt.width = 8;
  gpt.heads = 2;
  gpt.batch = 4;
  gpt.micro_batches = 2;
  gpt.steps = 30;
  gpt.warmup_steps = 1;
  return {
      {"data", {1, 1}, mlp(Parallel::kData, 1)},
      {"model", {1, 1}, mlp(Parallel::kModel, 1)},
      {"hybrid", {2, 2}, mlp(Parallel::kHybrid, 1)},
      {"pipeline", {1, 1}, mlp(Parallel::kPipeline, 4)},
      {"unequal", {1, 2}, mlp(Parallel::kData, 2)},
      {"custom", {1, 1}, [points](Job& job) { TrainSquash(job, points); }, AddSquash},
      {"gpt", {1, 1}, [gpt](Job& job) { examples::TrainGpt(job, gpt); }},
      // What the devices of a node reduce and gather, for every micro-batch.
      {"stacked", {2, 2}, mlp(Parallel::kHybrid, 4)},
  };
}

SimPlan WithDevices(SimPlan plan, DeviceMix mix) {
  plan.kinds = NodeKindsOf(mix, plan.devices.size());
  plan.collects_between_nodes = mix == DeviceMix::kNetwork;
  return plan;
}

absl::StatusOr<SimPlan> FindSimPlan(const std::vector<SimPlan>& plans, const std::string& name) {
  std::vector<std::string> names;
  for (const SimPlan& plan : plans) {
    if (plan.name == name) return plan;
    names.push_back(plan.name);
  }
  return absl::NotFoundError(
      absl::StrFormat("no plan '%s'; there are %s", name, absl::StrJoin(names, ", ")));
}

}  // namespace braid
