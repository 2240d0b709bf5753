#include "examples/resnet_model.h"

#include <array>
#include <cmath>
#include <string>

namespace examples {
namespace {

using braid::Job;
using braid::NameScope;
using braid::NdSbp;
using braid::Tensor;
using namespace braid::sbp;

struct Mode {
  Parallel parallel;
  bool training;
  int64_t norm_groups;
};

// Outputs of the first of a pair of convolutions, inputs of the second: weights are [out, in, ...].
PairLayout LayoutOfConvolutions(Parallel parallel) {
  if (parallel == Parallel::kModel) return {S(0), S(1)};
  if (parallel == Parallel::kHybrid) return {NdSbp{B, S(0)}, NdSbp{B, S(1)}};
  return {};
}

struct Convolution {
  std::string name;
  int64_t features = 0, kernel = 3, stride = 1;
  std::optional<NdSbp> weight = std::nullopt;
};
// Normal weights for rectified outputs: He et al., arXiv 1502.01852.
Tensor Conv(Tensor x, const Convolution& conv) {
  const double outputs = static_cast<double>(conv.features * conv.kernel * conv.kernel);
  return ConvLayer(x, conv.features,
                   {.name = conv.name,
                    .kernel = {conv.kernel},
                    .strides = {conv.stride},
                    .padding = {conv.kernel / 2},
                    .bias = false,
                    .weight = conv.weight,
                    .stddev = std::sqrt(2 / outputs)});
}

Tensor Norm(Tensor x, const std::string& name, const Mode& mode) {
  return BatchNormLayer(x, {.name = name,
                            .training = mode.training,
                            .groups = mode.norm_groups,
                            .gamma = "weight",
                            .beta = "bias",
                            .running_variance = "running_var"});
}

// The way around a block, where its shape changes.
Tensor Shortcut(Tensor x, int64_t features, int64_t stride, const Mode& mode) {
  if (!x.valid() || (stride == 1 && x.shape()[1] == features)) return x;
  x = Conv(x, {.name = "downsample.0", .features = features, .kernel = 1, .stride = stride});
  return Norm(x, "downsample.1", mode);
}

Tensor BasicBlock(Tensor x, int64_t width, int64_t stride, const Mode& mode) {
  const PairLayout layout = LayoutOfConvolutions(mode.parallel);
  Tensor y =
      Conv(x, {.name = "conv1", .features = width, .stride = stride, .weight = layout.first});
  y = Relu(Norm(y, "bn1", mode));
  y = Norm(Conv(y, {.name = "conv2", .features = width, .weight = layout.second}), "bn2", mode);
  return Relu(y + Shortcut(x, width, stride, mode));
}

// The stride is the middle convolution's, as in torchvision.
Tensor Bottleneck(Tensor x, int64_t width, int64_t stride, const Mode& mode) {
  const PairLayout layout = LayoutOfConvolutions(mode.parallel);
  Tensor y = Conv(x, {.name = "conv1", .features = width, .kernel = 1});
  y = Relu(Norm(y, "bn1", mode));
  y = Conv(y, {.name = "conv2", .features = width, .stride = stride, .weight = layout.first});
  y = Relu(Norm(y, "bn2", mode));
  y = Conv(y, {.name = "conv3", .features = 4 * width, .kernel = 1, .weight = layout.second});
  y = Norm(y, "bn3", mode);
  return Relu(y + Shortcut(x, 4 * width, stride, mode));
}

Tensor Stem(Tensor x, const ResNetOptions& options, const Mode& mode) {
  if (options.stem == ResNetStem::kCifar) {
    return Relu(Norm(Conv(x, {.name = "conv1", .features = 64}), "bn1", mode));
  }
  x = Conv(x, {.name = "conv1", .features = 64, .kernel = 7, .stride = 2});
  x = Relu(Norm(x, "bn1", mode));
  return MaxPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
}

std::array<int, 4> BlocksOf(int depth) {
  if (depth == 18) return {2, 2, 2, 2};
  return {3, 4, 6, 3};
}

// images [batch, 3, side, side] -> logits [batch, classes].
Tensor ResNet(Job& job, Tensor x, const ResNetOptions& options, bool training) {
  const Mode mode = {options.parallel, training, options.norm_groups};
  const int num_stages = options.parallel == Parallel::kPipeline ? 2 : 1;
  const auto stages = PipelineStages(job.devices(), num_stages);
  const auto on_stage = [&](int stage, const std::function<Tensor()>& fn) {
    return num_stages == 1 ? fn() : job.On(stages[stage], fn);
  };
  x = on_stage(0, [&] { return Stem(x, options, mode); });
  const std::array<int, 4> blocks = BlocksOf(options.depth);
  for (int layer = 0; layer < 4; ++layer) {  // each of about as many operations
    const int64_t width = int64_t{64} << layer;
    x = on_stage(layer * num_stages / 4, [&] {
      for (int block = 0; block < blocks[layer]; ++block) {
        const NameScope scope(job.graph(), absl::StrFormat("layer%d.%d", layer + 1, block));
        const int64_t stride = layer > 0 && block == 0 ? 2 : 1;
        x = options.depth < 50 ? BasicBlock(x, width, stride, mode)
                               : Bottleneck(x, width, stride, mode);
      }
      return x;
    });
  }
  return on_stage(num_stages - 1, [&] {
    return Linear(Flatten(GlobalAvgPool(x)), options.classes, {.name = "fc"});
  });
}

}  // namespace

absl::StatusOr<ResNetStem> ParseStem(const std::string& text) {
  if (text == "cifar") return ResNetStem::kCifar;
  if (text == "imagenet") return ResNetStem::kImageNet;
  return absl::InvalidArgumentError(
      absl::StrFormat("--stem=%s; cifar or imagenet was expected", text));
}

absl::Status CheckDepth(int depth) {
  if (depth == 18 || depth == 34 || depth == 50) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--depth=%d; 18, 34 or 50 was expected", depth));
}

void TrainResNet(Job& job, const ResNetOptions& options) {
  OnDevices(job, options.parallel, [&] {
    auto [image, label] = job.Read(
        options.train,
        {.batch = options.batch, .shuffle = true, .name = "train", .dtype = options.dtype});
    const Tensor logits = ResNet(job, image, options, /*training=*/true);
    const Tensor loss = Mean(SoftmaxCrossEntropy(logits, label));
    braid::LearningRate rate = options.lr;
    if (options.steps > 0) {
      rate = braid::WarmupCosine(job.graph(), {.peak = options.lr,
                                               .floor = options.lr / 100,
                                               .warmup_steps = options.warmup_steps,
                                               .steps = options.steps});
    }
    job.Minimize(
        loss,
        braid::Sgd{.lr = rate, .momentum = options.momentum, .weight_decay = options.weight_decay},
        {.micro_batches = options.micro_batches});
    job.Fetch("loss", loss);
  });
}

void EvaluateResNet(Job& job, const ResNetOptions& options) {
  OnDevices(job, options.parallel, [&] {
    auto [image, label] =
        job.Read(options.held_out,
                 {.batch = options.evaluation_batch, .name = "held_out", .dtype = options.dtype});
    const Tensor logits = ResNet(job, image, options, /*training=*/false);
    job.Fetch("accuracy", Mean(Equal(ArgMax(logits), label)));
  });
}

}  // namespace examples
