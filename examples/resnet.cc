// Trains a residual network on coloured patterns that it draws. One program for one device;
// --parallel says how it is spread over all that the cluster has.

#include <braid/braid.h>

#include <iostream>

#include "absl/flags/flag.h"
#include "examples/resnet_model.h"
#include "examples/training.h"

ABSL_FLAG(int, depth, 18, "18, 34 or 50 layers");
ABSL_FLAG(std::string, stem, "cifar",
          "cifar: 3 x 3 for small images; imagenet: 7 x 7 with stride 2, and a pooling");
ABSL_FLAG(int64_t, side, 0, "Rows and columns of an image; 0: 32 for cifar, 224 for imagenet");
ABSL_FLAG(int64_t, classes, 10, "Kinds of images");
ABSL_FLAG(std::string, parallel, "data", "data, model, hybrid or pipeline");
ABSL_FLAG(int64_t, steps, 100, "Training steps");
ABSL_FLAG(int64_t, batch, 32, "Images per step, over all devices");
ABSL_FLAG(int, micro_batches, 1, "Parts that a step is computed in");
ABSL_FLAG(
    int64_t, norm_groups, 0,
    "Runs of images that batch normalization takes for batches of their own: as many as there "
    "are devices, and they exchange no statistics; 0: the whole batch is one");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, lr, 0.05, "Peak learning rate of SGD; it falls to a hundredth");
ABSL_FLAG(double, momentum, 0.9, "Of SGD");
ABSL_FLAG(int64_t, report_every, 20, "Steps between evaluations on held-out images");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");

namespace {

constexpr int64_t kTrain = 20000;
constexpr int64_t kHeldOut = 200;

absl::StatusOr<examples::ResNetOptions> OptionsOfFlags() {
  examples::ResNetOptions options;
  BRAID_ASSIGN_OR_RETURN(options.parallel, examples::ParseParallel(absl::GetFlag(FLAGS_parallel)));
  BRAID_ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  BRAID_ASSIGN_OR_RETURN(options.stem, examples::ParseStem(absl::GetFlag(FLAGS_stem)));
  options.depth = absl::GetFlag(FLAGS_depth);
  BRAID_RETURN_IF_ERROR(examples::CheckDepth(options.depth));
  options.side = absl::GetFlag(FLAGS_side);
  if (options.side == 0) options.side = options.stem == examples::ResNetStem::kCifar ? 32 : 224;
  options.classes = absl::GetFlag(FLAGS_classes);
  options.batch = absl::GetFlag(FLAGS_batch);
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.norm_groups = absl::GetFlag(FLAGS_norm_groups);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.momentum = absl::GetFlag(FLAGS_momentum);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.warmup_steps = options.steps / 10;
  braid::PatternsOptions patterns = {.side = options.side, .classes = options.classes};
  patterns.count = kTrain;
  options.train = braid::DrawnPatterns(patterns);
  patterns.first = kTrain;
  patterns.count = kHeldOut;
  options.held_out = braid::DrawnPatterns(patterns);
  return options;
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(const examples::ResNetOptions options, OptionsOfFlags());
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainResNet(job, options);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateResNet(job, options);
  }));
  BRAID_RETURN_IF_ERROR(examples::LoadFrom(session, absl::GetFlag(FLAGS_load)));
  double accuracy = 0;
  BRAID_RETURN_IF_ERROR(examples::TrainInRounds(
      train, evaluate,
      {.steps = options.steps,
       .report_every = absl::GetFlag(FLAGS_report_every),
       .evaluation_steps = kHeldOut / options.evaluation_batch},
      [&accuracy](int64_t done, const auto& trained, const auto& evaluated) {
        accuracy = evaluated.Mean("accuracy");
        std::cout << absl::StrFormat("step %d  loss %.4f  accuracy %.4f\n", done,
                                     trained.Mean("loss"), accuracy)
                  << std::flush;
      }));
  BRAID_RETURN_IF_ERROR(examples::SaveTo(session, absl::GetFlag(FLAGS_save)));
  std::cout << absl::StrFormat("accuracy %.2f %%\n", 100 * accuracy);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(argc, argv,
                     {.about = "Trains a residual network on coloured patterns that it draws."},
                     Program);
}
