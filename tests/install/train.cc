// Fits y = x w on two devices with the installed package and checks that w is found.
#include <braid/braid.h>

#include <cmath>
#include <iostream>

#include "absl/strings/str_format.h"

namespace {

using braid::Tensor;

void Train(braid::Job& job) {
  const Tensor x = RandomNormal(job.graph(), {64, 3});
  const Tensor ones = Constant(job.graph(), 1.0, {.shape = {3, 1}});
  const Tensor error = Linear(x, 1, {.name = "fit", .bias = false}) - MatMul(x, ones);
  const Tensor loss = Mean(Square(error));
  job.Minimize(loss, braid::Sgd{.lr = 0.1});
  job.Fetch("loss", loss);
}

absl::Status Program(braid::Session& session) {
  BRAID_ASSIGN_OR_RETURN(auto train, session.Compile("train", Train));
  BRAID_ASSIGN_OR_RETURN(const auto result, train.Run({.steps = 200}));
  const double loss = result.Scalars("loss").back();
  std::cout << "loss " << loss << "\n";
  if (!(std::abs(loss) < 1e-6)) {
    return absl::InternalError(absl::StrFormat("the loss is %g after 200 steps", loss));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
