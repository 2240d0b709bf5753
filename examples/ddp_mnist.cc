// Data parallelism as a program of process groups has it: each rank runs this program and is a
// node, reads its own part of the digits, and the mean of all ranks' losses is minimized. Gradients
// are averaged while the backward pass goes on.
//
//   build/release/bin/ddp_mnist --spawn=2
//
// With a checkpoint after each epoch, ranks that are started again go on:
//
//   build/release/bin/braid launch --standalone --nproc_per_node=2 --max_restarts=2 --
//     build/release/bin/ddp_mnist --checkpoints=mnist_checkpoints
#include <braid/braid.h>
#include <braid/dist.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"

ABSL_FLAG(int64_t, epochs, 5, "Passes over the training digits");
ABSL_FLAG(
    std::string, checkpoints, "",
    "Folder for a checkpoint after each epoch, and for the one to go on from if there is one");
ABSL_FLAG(std::string, weights, "", "Safetensors file for the weights at the end");

namespace {

using braid::Tensor;

constexpr int64_t kTrain = 9000, kTest = 1000, kBatch = 100, kSteps = kTrain / kBatch;

Tensor Mlp(Tensor x) {
  x = Relu(Linear(x, 512, {.name = "fc1"}));
  x = Relu(Linear(x, 512, {.name = "fc2"}));
  return Linear(x, 10, {.name = "out"});
}

absl::Status Train(braid::dist::World& world) {
  BRAID_ASSIGN_OR_RETURN(const auto session, braid::Session::Start(world, {}));
  BRAID_ASSIGN_OR_RETURN(auto train, session->Compile("train", [&](braid::Job& job) {
    const Tensor loss = job.Mirrored([&] {
      auto [image, label] =
          job.Read(braid::DrawnDigits({.count = kTrain}),
                   {.batch = kBatch / world.size(), .shuffle = true, .name = "train"});
      return MeanMirrored(Mean(SoftmaxCrossEntropy(Mlp(image), label)));
    });
    job.Minimize(loss, braid::Adam{.lr = 1e-3});
    job.Fetch("loss", loss);
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session->Compile("evaluate", [&](braid::Job& job) {
    auto [image, label] = job.Read(braid::DrawnDigits({.first = kTrain, .count = kTest}),
                                   {.batch = kTest / 10, .name = "test"});
    job.Fetch("accuracy", Mean(Equal(ArgMax(Mlp(image)), label)));
  }));
  const std::string checkpoints = absl::GetFlag(FLAGS_checkpoints);
  if (!checkpoints.empty()) {
    const absl::Status loaded = session->Load(checkpoints);
    if (!loaded.ok() && !absl::IsNotFound(loaded)) return loaded;
  }
  for (int64_t epoch = train.step() / kSteps + 1; epoch <= absl::GetFlag(FLAGS_epochs); ++epoch) {
    BRAID_ASSIGN_OR_RETURN(const auto trained,
                           train.Run({.steps = kSteps, .keep = braid::Keep::kMean}));
    BRAID_ASSIGN_OR_RETURN(const auto evaluated,
                           evaluate.Run({.steps = 10, .keep = braid::Keep::kMean}));
    if (!checkpoints.empty()) BRAID_RETURN_IF_ERROR(session->Save(checkpoints));
    if (world.rank() != 0) continue;  // all ranks know the same
    std::printf("epoch %d: loss %.4f, accuracy %.4f\n", static_cast<int>(epoch),
                trained.Mean("loss"), evaluated.Mean("accuracy"));
    std::fflush(stdout);
  }
  if (const std::string weights = absl::GetFlag(FLAGS_weights); !weights.empty()) {
    BRAID_RETURN_IF_ERROR(session->SaveWeights(weights));
  }
  return session->Close(absl::OkStatus());
}

}  // namespace

int main(int argc, char** argv) {
  return braid::dist::Main(
      argc, argv, {.about = "Trains an MLP on handwritten digits, one process a rank."}, Train);
}
