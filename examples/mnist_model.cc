#include "examples/mnist_model.h"

namespace examples {
namespace {

using braid::Job;
using braid::NdSbp;
using braid::Tensor;
using namespace braid::sbp;

struct HiddenOptions {
  std::string name;
  std::optional<NdSbp> weight = std::nullopt;  // how it lies over the devices
};

Tensor Hidden(Tensor x, const MnistOptions& options, HiddenOptions layer) {
  x = Relu(Linear(x, options.hidden, {.name = layer.name, .weight = layer.weight}));
  return options.dropout > 0 ? Dropout(x, options.dropout) : x;
}

Tensor Mlp(Job& job, Tensor x, const MnistOptions& options) {
  switch (options.parallel) {
    case Parallel::kData:
      x = Hidden(x, options, {"fc1"});
      x = Hidden(x, options, {"fc2"});
      return Linear(x, 10, {.name = "out"});
    case Parallel::kModel:  // columns, then rows: one sum for both layers
      x = Hidden(x, options, {"fc1", S(1)});
      x = Hidden(x, options, {"fc2", S(0)});
      return Linear(x, 10, {.name = "out"});
    case Parallel::kHybrid:  // batches over the first dimension, columns and rows over the second
      x = Hidden(x, options, {"fc1", NdSbp{B, S(1)}});
      x = Hidden(x, options, {"fc2", NdSbp{B, S(0)}});
      return Linear(x, 10, {.name = "out"});
    case Parallel::kPipeline: {
      const auto stages = PipelineStages(job.devices(), 2);
      x = job.On(stages[0], [&] { return Hidden(x, options, {"fc1"}); });
      return job.On(stages[1],
                    [&] { return Linear(Hidden(x, options, {"fc2"}), 10, {.name = "out"}); });
    }
  }
  return {};
}

}  // namespace

void TrainMnist(Job& job, const MnistOptions& options) {
  OnDevices(job, options.parallel, [&] {
    const Tensor loss = LossOf(job, options.mirrored, options.batch, [&](int64_t batch) {
      auto [image, label] =
          job.Read(options.train,
                   {.batch = batch, .shuffle = true, .name = "train", .dtype = options.dtype});
      return Mean(SoftmaxCrossEntropy(Mlp(job, image, options), label));
    });
    braid::LearningRate rate = options.lr;
    if (options.steps > 0) {
      rate = braid::WarmupCosine(
          job.graph(), {.peak = options.lr, .floor = options.lr / 100, .steps = options.steps});
    }
    job.Minimize(loss, braid::Adam{.lr = rate}, {.micro_batches = options.micro_batches});
    job.Fetch("loss", loss);
  });
}

void EvaluateMnist(Job& job, const MnistOptions& options) {
  OnDevices(job, options.parallel, [&] {
    auto [image, label] =
        job.Read(options.test, {.batch = 100, .name = "test", .dtype = options.dtype});
    job.Fetch("accuracy", Mean(Equal(ArgMax(Mlp(job, image, options)), label)));
  });
}

}  // namespace examples
