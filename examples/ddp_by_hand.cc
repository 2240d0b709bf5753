// Data parallelism by hand, as a program of process groups writes it: each rank computes gradients
// of its own samples, the ranks average them, and each updates its own copy of the model. In the
// consistent view the compiler does all this (examples/mnist.cc); here every step of it is seen.
//
//   build/release/bin/ddp_by_hand --spawn=2
//
// Any number of ranks that divides the batch prints the same losses, up to rounding.
#include <braid/braid.h>
#include <braid/dist.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using braid::Array;
using braid::Tensor;

constexpr int64_t kSamples = 4096, kBatch = 64, kPasses = 5;

// Two spirals, a class each; the same on every rank.
struct Spirals {
  std::vector<float> points;  // [kSamples, 2]
  std::vector<int32_t> classes;
};
Spirals Draw() {
  Spirals spirals;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> length(0.5f, 6.0f), noise(-0.1f, 0.1f);
  for (int32_t i = 0; i < kSamples; ++i) {
    const float radius = length(random), angle = radius + (i % 2 == 0 ? 0.0f : 3.14159265f);
    spirals.points.push_back(radius * std::cos(angle) / 3 + noise(random));
    spirals.points.push_back(radius * std::sin(angle) / 3 + noise(random));
    spirals.classes.push_back(i % 2);
  }
  return spirals;
}

struct Parameter {
  const char* name;
  braid::Shape shape;
  double stddev;
};
std::vector<Parameter> Parameters() {
  return {{"hidden.weight", {2, 64}, 0.7},
          {"hidden.bias", {64}, 0.5},
          {"middle.weight", {64, 64}, 0.15},
          {"out.weight", {64, 2}, 0.15}};
}

// By name: those of one job are those of another.
using Variables = std::map<std::string, Tensor>;
Variables MakeVariables(braid::Job& job) {
  Variables variables;
  for (const auto& [name, shape, stddev] : Parameters()) {
    variables[name] =
        Variable(job.graph(), {.name = name, .shape = shape, .init = "normal", .stddev = stddev});
  }
  return variables;
}

// Feeds x and y, fetches the loss and its gradient for each variable, and updates nothing.
void ComputeGradients(braid::Job& job, int64_t batch) {
  const Tensor x = job.Input("x", {batch, 2}), y = job.Input("y", {batch}, braid::DType::kI32);
  const Variables variables = MakeVariables(job);
  Tensor h = Relu(MatMul(x, variables.at("hidden.weight")) + variables.at("hidden.bias"));
  h = Relu(MatMul(h, variables.at("middle.weight")));
  const Tensor loss = Mean(SoftmaxCrossEntropy(MatMul(h, variables.at("out.weight")), y));
  job.Minimize(loss, braid::Sgd{.lr = 0});  // asks for gradients
  job.Fetch("loss", loss);
  for (const auto& [name, variable] : variables) job.Fetch(name, job.GradientOf(variable));
}

// Feeds a gradient for each variable. That of sum(v * g) for v is g, so any optimizer takes it.
void ApplyGradients(braid::Job& job) {
  Tensor sum = Constant(job.graph(), 0.0, {});
  for (const auto& [name, variable] : MakeVariables(job)) {
    sum = sum + Sum(variable * job.Input(name + ".gradient", variable.shape()));
  }
  job.Minimize(sum, braid::Adam{.lr = 5e-3});
}

absl::Status Train(braid::dist::World& world) {
  if (kBatch % world.size() != 0) {
    return absl::InvalidArgumentError("the batch has 64 samples, which " +
                                      std::to_string(world.size()) +
                                      " ranks do not divide; start 1, 2, 4, ... of them");
  }
  const int64_t batch = kBatch / world.size();
  BRAID_ASSIGN_OR_RETURN(const auto session, braid::Session::Start({}));  // on this rank's CPU
  BRAID_ASSIGN_OR_RETURN(
      auto compute, session->Compile("compute", [&](auto& job) { ComputeGradients(job, batch); }));
  BRAID_ASSIGN_OR_RETURN(auto apply, session->Compile("apply", ApplyGradients));
  BRAID_ASSIGN_OR_RETURN(auto sampler,
                         braid::dist::DistributedSampler::Make(
                             kSamples, world.rank(), world.size(),
                             {.batch_size = batch, .remainder = braid::dist::Remainder::kDrop}));
  const Spirals spirals = Draw();
  while (sampler.epoch() < kPasses) {
    std::vector<double> mean_loss = {0};
    while (const auto samples = sampler.Next()) {
      Array x(braid::DType::kF32, {batch, 2}), y(braid::DType::kI32, {batch});
      for (int64_t i = 0; i < batch; ++i) {
        const auto sample = static_cast<size_t>(samples->samples[i]);
        x.mutable_data<float>()[2 * i] = spirals.points[2 * sample];
        x.mutable_data<float>()[2 * i + 1] = spirals.points[2 * sample + 1];
        y.mutable_data<int32_t>()[i] = spirals.classes[sample];
      }
      BRAID_ASSIGN_OR_RETURN(const auto computed,
                             compute.Run({.feeds = {{"x", std::move(x)}, {"y", std::move(y)}}}));
      mean_loss[0] += computed.Mean("loss") / static_cast<double>(sampler.num_batches());

      std::map<std::string, Array> gradients;
      braid::dist::Batch all;  // one exchange of messages for all of them
      for (const Parameter& parameter : Parameters()) {
        Array& gradient = gradients[parameter.name] = computed.Last(parameter.name);
        all.AllReduce(gradient, braid::dist::ReduceOp::kAverage);
      }
      BRAID_RETURN_IF_ERROR(world.Run(all));

      braid::RunOptions fed;
      for (auto& [name, gradient] : gradients) {
        fed.feeds.emplace_back(name + ".gradient", std::move(gradient));
      }
      BRAID_RETURN_IF_ERROR(apply.Run(fed).status());
    }
    BRAID_RETURN_IF_ERROR(world.AllReduce(mean_loss, braid::dist::ReduceOp::kAverage));
    if (world.rank() == 0) {
      std::printf("epoch %d: loss %.4f\n", static_cast<int>(sampler.epoch()), mean_loss[0]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  return braid::dist::Main(
      argc, argv, {.about = "Trains a model on all ranks, which average their gradients by hand."},
      Train);
}
