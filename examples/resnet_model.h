// Residual networks, written for one device, with the lines that spread them: He et al., "Deep
// Residual Learning for Image Recognition", arXiv 1512.03385. Variables have torchvision's names
// (conv1.weight, layer1.0.bn1.running_var), and shapes but for fc.weight, which is [in, out].
#pragma once

#include <braid/braid.h>

#include "examples/parallel.h"

namespace examples {

// What stands in front of the blocks: 3 x 3 for images of 32 x 32, or 7 x 7 with stride 2 and a
// pooling for those of 224 x 224.
enum class ResNetStem { kCifar, kImageNet };
absl::StatusOr<ResNetStem> ParseStem(const std::string& text);

struct ResNetOptions {
  Parallel parallel = Parallel::kData;
  braid::DType dtype = braid::DType::kF32;
  int depth = 18;  // 18 and 34 of basic blocks, 50 of bottlenecks
  ResNetStem stem = ResNetStem::kCifar;
  braid::DatasetSpec train, held_out;  // images [3, side, side] and labels
  int64_t side = 32;
  int64_t classes = 10;
  int64_t batch = 32;  // over all devices
  int64_t evaluation_batch = 50;
  int micro_batches = 1;
  int64_t norm_groups = 0;  // in training, as braid::BatchNormOptions::groups
  double lr = 0.05;         // peak of SGD's
  double momentum = 0.9;
  double weight_decay = 5e-4;
  int64_t steps = 0;  // over which the rate falls to a hundredth; 0: it stays
  int64_t warmup_steps = 0;
};

// INVALID_ARGUMENT for a depth that there is none of.
absl::Status CheckDepth(int depth);
// Fetches "loss".
void TrainResNet(braid::Job& job, const ResNetOptions& options);
// Fetches "accuracy" of batches in order, by the running statistics.
void EvaluateResNet(braid::Job& job, const ResNetOptions& options);

}  // namespace examples
