// A job that is a chain of 1,000 tiny elementwise ops on one device: microseconds per op, actors,
// credits and all.
//
//   build/release/bin/chain_bench [ops] [steps]

#include <braid/braid.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const int ops = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int64_t steps = argc > 2 ? std::atoi(argv[2]) : 2000;
  auto session = braid::Session::Start({.progress = braid::Progress::kOff});
  if (!session.ok()) return 1;
  auto job = (*session)->Compile("chain", [ops](braid::Job& job) {
    braid::Tensor x = braid::Variable(job.graph(), {.name = "x", .shape = {16}, .init = "ones"});
    for (int i = 0; i < ops; ++i) {
      switch (i % 4) {
        case 0:
          x = x + 0.5;
          break;
        case 1:
          x = x * 0.9;
          break;
        case 2:
          x = Relu(x);
          break;
        default:
          x = -x;
      }
    }
    job.Fetch("x", x);
  });
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", std::string(job.status().message()).c_str());
    return 1;
  }
  std::vector<double> per_op;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    if (const auto result = job->Run({.steps = steps}); !result.ok()) {
      std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
      return 1;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    per_op.push_back(took.count() / static_cast<double>(steps) / ops);
  }
  std::sort(per_op.begin(), per_op.end());
  std::printf("%d ops: median %.3f us an op (best %.3f, worst %.3f)\n", ops,
              per_op[per_op.size() / 2], per_op.front(), per_op.back());
  return 0;
}
