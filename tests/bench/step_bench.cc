// Training steps per second on one CPU device with one thread: an MLP 784-512-512-10 or a GPT of 4
// layers, 256 channels, context 128. Compared with PyTorch by tests/bench/step_bench.sh.
//
//   build/release/bin/step_bench mlp BATCH SECONDS | gpt BATCH SECONDS TEXT

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "api/braid.h"
#include "examples/gpt_model.h"
#include "examples/mnist_model.h"
#include "runtime/data/text_dataset.h"

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: step_bench mlp BATCH SECONDS | gpt BATCH SECONDS TEXT\n");
    return 2;
  }
  const std::string model = argv[1];
  const int64_t batch = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  auto session = braid::Session::Start({.progress = braid::Progress::kOff});
  if (!session.ok()) return 1;
  auto job = (*session)->Compile("train", [&](braid::Job& job) {
    if (model == "mlp") {
      examples::MnistOptions options;
      options.train = braid::DrawnDigits({.count = 4096});
      options.batch = batch;
      examples::TrainMnist(job, options);
      return;
    }
    examples::GptOptions options;
    options.width = 256;
    options.heads = 8;
    options.batch = batch;
    options.clip = 0;
    options.train = braid::TextFile(argc > 4 ? argv[4] : "", {.context = options.context});
    examples::TrainGpt(job, options);
  });
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", std::string(job.status().message()).c_str());
    return 1;
  }
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int64_t steps) {
    const auto begin = Clock::now();
    const auto result = job->Run({.steps = steps});
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
      std::exit(1);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run(3);
  const double one = run(3) / 3;
  const int64_t steps = std::max<int64_t>(3, static_cast<int64_t>(seconds / one));
  std::printf("%.3f\n", static_cast<double>(steps) / run(steps));
  return 0;
}
