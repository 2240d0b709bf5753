// A parameter server that waits for nobody: the last device has the variables, and the others are
// workers, each of which pulls values, pushes its gradient, and may be --max_staleness steps ahead
// of the slowest. With --max_staleness=0 all wait for all in every step.
//
//   build/release/bin/ps_async --devices=cpu:3 --max_staleness=4
#include <braid/braid.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(int, max_staleness, 4, "How many steps a worker may be ahead of the slowest");
ABSL_FLAG(int64_t, epochs, 5, "Passes over the training digits");

namespace {

using braid::Tensor;

Tensor Mlp(Tensor x) {
  x = Relu(Linear(x, 512, {.name = "fc1"}));
  return Linear(x, 10, {.name = "out"});
}

absl::Status Program(braid::Session& session) {
  const int devices = session.devices().size();
  if (devices < 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a server and a worker need 2 devices and there is %d; say e.g. --devices=cpu:3", devices));
  }
  const int max_staleness = absl::GetFlag(FLAGS_max_staleness);
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", [&](braid::Job& job) {
    job.On(job.devices().Slice(0, devices - 1), [&] {
      auto [image, label] = job.Read(braid::DrawnDigits({.count = 9000}),
                                     {.batch = 100, .shuffle = true, .name = "train"});
      const Tensor loss = Mean(SoftmaxCrossEntropy(Mlp(ToSbp(image, braid::sbp::S(0))), label));
      job.Minimize(loss, braid::Adam{.lr = 1e-3},
                   {.server = braid::Server{.placement = job.devices().Slice(devices - 1, 1),
                                            .max_staleness = max_staleness,
                                            .staleness = max_staleness > 0 ? "staleness" : ""}});
      job.Fetch("loss", loss);
    });
  }));
  BRAID_ASSIGN_OR_RETURN(auto evaluate, session.Compile("evaluate", [&](braid::Job& job) {
    auto [image, label] = job.Read(braid::DrawnDigits({.first = 9000, .count = 1000}),
                                   {.batch = 100, .name = "test"});
    job.Fetch("accuracy", Mean(Equal(ArgMax(Mlp(image)), label)));
  }));
  for (int64_t epoch = 1; epoch <= absl::GetFlag(FLAGS_epochs); ++epoch) {
    BRAID_ASSIGN_OR_RETURN(const auto trained, train.Run({.epochs = 1}));
    BRAID_ASSIGN_OR_RETURN(const auto evaluated, evaluate.Run({.epochs = 1}));
    std::vector<double> staleness = {0};
    if (max_staleness > 0) staleness = trained.Scalars("staleness");
    std::printf("epoch %d: loss %.4f, accuracy %.4f, at most %.0f steps ahead\n",
                static_cast<int>(epoch), trained.Mean("loss"), evaluated.Mean("accuracy"),
                *std::ranges::max_element(staleness));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
