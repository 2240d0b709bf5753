// Training steps per second of an MLP 784-512-512-10 or a GPT of 4 layers and 256 channels, on
// whatever devices the flags of Main say. Compared with PyTorch by step_bench.sh (one device) and
// ddp_bench.sh (two nodes).
//
//   build/release/bin/step_bench --model=mlp --batch=100
//   build/release/bin/step_bench --model=gpt --batch=8 --text=shakespeare.txt

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "api/braid.h"
#include "examples/gpt_model.h"
#include "examples/mnist_model.h"
#include "runtime/data/text_dataset.h"

ABSL_FLAG(std::string, model, "mlp", "mlp or gpt");
ABSL_FLAG(int64_t, batch, 100, "Samples per step, over all devices");
ABSL_FLAG(double, seconds, 3, "About how long to measure");
ABSL_FLAG(std::string, text, "", "The text that gpt reads");
ABSL_FLAG(int64_t, context, 128, "Characters in a window of gpt");

namespace {

void Record(braid::Job& job) {
  if (absl::GetFlag(FLAGS_model) == "mlp") {
    examples::MnistOptions options;
    options.train = braid::DrawnDigits({.count = 4096});
    options.batch = absl::GetFlag(FLAGS_batch);
    examples::TrainMnist(job, options);
    return;
  }
  examples::GptOptions options;
  options.width = 256;
  options.heads = 8;
  options.batch = absl::GetFlag(FLAGS_batch);
  options.context = absl::GetFlag(FLAGS_context);
  options.clip = 0;
  options.train = braid::TextFile(absl::GetFlag(FLAGS_text), {.context = options.context});
  examples::TrainGpt(job, options);
}

absl::Status Program(braid::Session& session) {
  ASSIGN_OR_RETURN(auto job, session.Compile("train", Record));
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int64_t steps) -> absl::StatusOr<double> {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(job.Run({.steps = steps}).status());
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  RETURN_IF_ERROR(run(3).status());
  ASSIGN_OR_RETURN(const double three, run(3));
  const auto steps =
      std::max<int64_t>(3, static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) / (three / 3)));
  ASSIGN_OR_RETURN(const double time, run(steps));
  std::printf("%.3f\n", static_cast<double>(steps) / time);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
