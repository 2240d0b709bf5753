// Training steps per second of a model, on whatever devices the flags of Main say: an MLP
// 784-512-512-10, a GPT of 4 layers and 256 channels if nothing else is said, LeNet on 28 x 28, or
// a residual network on `side` x `side` (up to 64: with the stem for small images and 10 classes,
// else 1,000). Compared with PyTorch by step_bench.sh (one device) and ddp_bench.sh (two nodes).
//
//   build/release/bin/step_bench --model=mlp --batch=100
//   build/release/bin/step_bench --model=gpt --batch=8 --text=shakespeare.txt
//   ... --layers=6 --width=384 --heads=6 --context=256 --operators
//   build/release/bin/step_bench --model=resnet50 --batch=4 --side=224
//
// mlp and gpt are also programs of process groups: where RANK is set each rank runs this program,
// and reads its own part of the batch.
//
//   build/release/bin/braid launch --standalone --nproc_per_node=2 --
//     build/release/bin/step_bench --model=mlp

#include <braid/braid.h>
#include <braid/dist.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>

#include "absl/flags/flag.h"
#include "examples/gpt_model.h"
#include "examples/lenet_model.h"
#include "examples/mnist_model.h"
#include "examples/resnet_model.h"
#include "runtime/base/process_usage.h"
#include "runtime/data/text_dataset.h"
#include "tests/bench/operator_times.h"

ABSL_FLAG(std::string, model, "mlp", "mlp, gpt, lenet, resnet18, resnet34 or resnet50");
ABSL_FLAG(int64_t, batch, 100, "Samples per step, over all devices");
ABSL_FLAG(double, seconds, 3, "About how long to measure");
ABSL_FLAG(std::string, text, "", "The text that gpt reads");
ABSL_FLAG(int64_t, context, 128, "Characters in a window of gpt");
ABSL_FLAG(int64_t, layers, 4, "Layers of gpt");
ABSL_FLAG(int64_t, width, 256, "Channels of gpt");
ABSL_FLAG(int64_t, heads, 8, "Heads of gpt");
ABSL_FLAG(int64_t, side, 32, "Rows and columns of a residual network's images");
ABSL_FLAG(int64_t, norm_groups, 0,
          "Groups of images of a residual network's batch normalization; 0: the whole batch");
ABSL_FLAG(bool, groups, false,
          "Train biases and all else as two groups, each with a rate and a decay of its own");
ABSL_FLAG(bool, details, false,
          "After the steps per second, on the same line: the steps per second of CPU time, the "
          "process's peak memory in MiB, the number of trained parameters, the last loss");
ABSL_FLAG(bool, operators, false, "Also print where the time goes, on one device");

namespace {

// The number of parameters that are trained.
int64_t CountParameters(const braid::LogicalGraph& graph) {
  int64_t count = 0;
  for (const braid::Op& op : graph.ops()) {
    if (op.type != "variable" || !op.attrs.Bool("trainable")) continue;
    count += graph.type(op.outputs[0]).shape.num_elements();
  }
  return count;
}

void RecordModel(braid::Job& job, bool is_mirrored) {
  const std::string model = absl::GetFlag(FLAGS_model);
  if (model == "mlp") {
    examples::MnistOptions options;
    options.train = braid::DrawnDigits({.count = 4096});
    options.batch = absl::GetFlag(FLAGS_batch);
    options.mirrored = is_mirrored;
    examples::TrainMnist(job, options);
    return;
  }
  if (model == "gpt") {
    examples::GptOptions options;
    options.layers = absl::GetFlag(FLAGS_layers);
    options.width = absl::GetFlag(FLAGS_width);
    options.heads = absl::GetFlag(FLAGS_heads);
    options.batch = absl::GetFlag(FLAGS_batch);
    options.context = absl::GetFlag(FLAGS_context);
    options.clip = 0;
    options.mirrored = is_mirrored;
    options.train = braid::TextFile(absl::GetFlag(FLAGS_text), {.context = options.context});
    examples::TrainGpt(job, options);
    return;
  }
  if (is_mirrored) {
    job.graph().Fail(
        absl::InvalidArgumentError("--model=" + model + " with RANK set; mlp or gpt was expected"));
    return;
  }
  if (model == "lenet") {
    examples::LeNetOptions options;
    options.train = braid::DrawnDigits({.count = 4096});
    options.batch = absl::GetFlag(FLAGS_batch);
    examples::TrainLeNet(job, options);
    return;
  }
  examples::ResNetOptions options;
  if (model == "resnet18" || model == "resnet34" || model == "resnet50") {
    options.depth = std::stoi(model.substr(6));
  } else {
    job.graph().Fail(absl::InvalidArgumentError(
        "--model=" + model + "; mlp, gpt, lenet, resnet18, resnet34 or resnet50 was expected"));
    return;
  }
  options.side = absl::GetFlag(FLAGS_side);
  if (options.side > 64) {
    options.stem = examples::ResNetStem::kImageNet;
    options.classes = 1000;
  }
  options.lr = 0.01;
  options.norm_groups = absl::GetFlag(FLAGS_norm_groups);
  options.batch = absl::GetFlag(FLAGS_batch);
  options.train = braid::DrawnPatterns({.side = options.side, .classes = options.classes});
  examples::TrainResNet(job, options);
}

// `world`: of whose ranks this is one; null: of none. The first one says what came of it.
absl::Status Program(braid::Session& session, bench::OperatorTimes& times,
                     braid::dist::World* world = nullptr) {
  if (world != nullptr && absl::GetFlag(FLAGS_operators)) {
    return absl::InvalidArgumentError("--operators with RANK set; it is of one process");
  }
  int64_t parameters = 0;
  BRAID_ASSIGN_OR_RETURN(auto job, session.Compile("train", [&](braid::Job& job) {
    RecordModel(job, /*is_mirrored=*/world != nullptr);
    if (absl::GetFlag(FLAGS_groups)) {
      job.graph().minimize()[0].groups = {{.names = "*bias", .rate = 0.5, .weight_decay = 0},
                                          {.names = "*", .rate = 0.75, .weight_decay = 0.01}};
    }
    parameters = CountParameters(job.graph());
  }));
  double loss = 0;
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int64_t steps) -> absl::StatusOr<double> {
    const auto begin = Clock::now();
    BRAID_ASSIGN_OR_RETURN(const auto result, job.Run({.steps = steps}));
    loss = result.Scalars("loss").back();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  BRAID_RETURN_IF_ERROR(run(3).status());
  BRAID_ASSIGN_OR_RETURN(const double three, run(3));
  auto steps =
      std::max<int64_t>(3, static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) / (three / 3)));
  if (world != nullptr) BRAID_RETURN_IF_ERROR(world->Broadcast(std::span(&steps, 1), 0));
  times.Reset();
  const double cpu_begin = braid::CpuSeconds();
  BRAID_ASSIGN_OR_RETURN(const double time, run(steps));
  const double cpu_time = braid::CpuSeconds() - cpu_begin;
  if (!std::isfinite(loss)) {
    return absl::InternalError(absl::StrFormat("the loss is %g after training", loss));
  }
  if (world != nullptr && world->rank() != 0) return absl::OkStatus();
  std::printf("%.3f", static_cast<double>(steps) / time);
  if (absl::GetFlag(FLAGS_details)) {
    std::printf(" %.3f %.1f %lld %.4f", static_cast<double>(steps) / cpu_time, braid::PeakMiB(),
                static_cast<long long>(parameters), loss);
  }
  std::printf("\n");
  if (absl::GetFlag(FLAGS_operators)) times.Print(steps, time / static_cast<double>(steps));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  bench::OperatorTimes times;
  if (braid::EnvironmentVariable("RANK").has_value()) {
    return braid::dist::Main(argc, argv, [&](braid::dist::World& world) -> absl::Status {
      BRAID_ASSIGN_OR_RETURN(const auto session, braid::Session::Start(world, {}));
      BRAID_RETURN_IF_ERROR(Program(*session, times, &world));
      return session->Close(absl::OkStatus());
    });
  }
  const auto watch = [&](braid::OpRegistry& operators, braid::KernelRegistry& kernels) {
    if (absl::GetFlag(FLAGS_operators)) times.Watch(operators, kernels);
    return absl::OkStatus();
  };
  return braid::Main(argc, argv, {.extend = watch},
                     [&](braid::Session& session) { return Program(session, times); });
}
