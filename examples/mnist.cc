// Trains an MLP on handwritten digits. One program for one device; --parallel says how it is spread
// over all that the cluster has.

#include <braid/braid.h>

#include <algorithm>
#include <iostream>

#include "absl/flags/flag.h"
#include "examples/mnist_model.h"
#include "examples/training.h"

ABSL_FLAG(
    std::string, data, "",
    "Folder with MNIST's t10k files, plain or .gz: 9,000 digits to train, 1,000 to test. Empty: "
    "digits drawn here");
ABSL_FLAG(std::string, parallel, "data", "data, model, hybrid or pipeline");
ABSL_FLAG(int64_t, epochs, 10, "Passes over the training digits");
ABSL_FLAG(int64_t, steps, 0, "Steps in all, instead of --epochs");
ABSL_FLAG(int64_t, batch, 100, "Digits per step, over all devices");
ABSL_FLAG(int, micro_batches, 1, "Parts that a step is computed in");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, bf16 or f16");
ABSL_FLAG(double, dropout, 0, "Share of the hidden values that are dropped in training");
ABSL_FLAG(double, lr, 1e-3, "Learning rate of Adam at the start; it falls to a hundredth");
ABSL_FLAG(std::string, save, "", "Folder for a checkpoint at the end");
ABSL_FLAG(std::string, load, "", "Folder of a checkpoint to start from");

namespace {

constexpr int64_t kTrain = 9000;
constexpr int64_t kTest = 1000;

int64_t StepsPerEpoch(int64_t batch) {
  return std::max<int64_t>(1, kTrain / std::max<int64_t>(1, batch));
}

absl::StatusOr<examples::MnistOptions> OptionsOfFlags() {
  examples::MnistOptions options;
  BRAID_ASSIGN_OR_RETURN(options.parallel, examples::ParseParallel(absl::GetFlag(FLAGS_parallel)));
  BRAID_ASSIGN_OR_RETURN(options.dtype, examples::ParseFloat(absl::GetFlag(FLAGS_dtype)));
  options.batch = absl::GetFlag(FLAGS_batch);
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.dropout = absl::GetFlag(FLAGS_dropout);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.steps = absl::GetFlag(FLAGS_steps);
  if (options.steps == 0) {
    const int64_t epochs = absl::GetFlag(FLAGS_epochs);
    if (epochs < 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--epochs=%d; at least 1 was expected", epochs));
    }
    options.steps = epochs * StepsPerEpoch(options.batch);
  }
  const std::string data = absl::GetFlag(FLAGS_data);
  if (data.empty()) {
    options.train = braid::DrawnDigits({.count = kTrain});
    options.test = braid::DrawnDigits({.first = kTrain, .count = kTest});
  } else {
    options.train = braid::Mnist(data + "/t10k", {.count = kTrain});
    options.test = braid::Mnist(data + "/t10k", {.first = kTrain, .count = kTest});
  }
  return options;
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(const examples::MnistOptions options, OptionsOfFlags());
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    examples::TrainMnist(job, options);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    examples::EvaluateMnist(job, options);
  }));
  BRAID_RETURN_IF_ERROR(examples::LoadFrom(session, absl::GetFlag(FLAGS_load)));
  int epoch = 0;
  double accuracy = 0;
  BRAID_RETURN_IF_ERROR(examples::TrainInRounds(
      train, evaluate,
      {.steps = options.steps,
       .report_every = StepsPerEpoch(options.batch),
       .evaluation_steps = kTest / 100},
      [&epoch, &accuracy](int64_t, const auto& trained, const auto& evaluated) {
        accuracy = evaluated.Mean("accuracy");
        std::cout << absl::StrFormat("epoch %d  loss %.4f  accuracy %.4f\n", ++epoch,
                                     trained.Mean("loss"), accuracy)
                  << std::flush;
      }));
  BRAID_RETURN_IF_ERROR(examples::SaveTo(session, absl::GetFlag(FLAGS_save)));
  std::cout << absl::StrFormat("accuracy %.2f %%\n", 100 * accuracy);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::Main(
      argc, argv,
      {.about = "Trains an MLP on handwritten digits and says how many of others it reads right."},
      Program);
}
