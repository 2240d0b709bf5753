// What curves.py measures: a chain of products whose --variables weights are split in turn by
// columns and by rows or held whole over the devices of a node. Compiles it, runs two steps, saves,
// loads. After each phase it prints a JSON line and waits for a line of its standard input, so that
// all its nodes stand still while they are looked at.

#include <braid/braid.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(int64_t, variables, 10, "Weights of 32 x 32");
ABSL_FLAG(std::string, folder, "", "Where to save");

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRows = 1024, kWidth = 32;

// Its rows are split over the nodes.
void Train(braid::Job& job) {
  const braid::Placement& all = job.devices();
  job.On(all.WithHierarchy({all.num_nodes(), all.size() / all.num_nodes()}), [&] {
    using namespace braid::sbp;
    braid::Tensor x = ToSbp(job.Input("x", {kRows, kWidth}), {S(0), B});
    for (int64_t i = 0; i < absl::GetFlag(FLAGS_variables); ++i) {
      braid::NdSbp layout = {B, B};
      if (i % 4 < 2) layout[1] = i % 4 == 0 ? S(1) : S(0);
      x = Linear(x, kWidth, {.name = absl::StrFormat("w%d", i), .bias = false, .weight = layout});
    }
    const braid::Tensor loss = Mean(Square(x));
    job.Minimize(loss, braid::Sgd{.lr = 0.01});
    job.Fetch("loss", loss);
  });
}

// Runs `act`, which gives further figures, says what it took, and waits.
absl::Status Phase(const std::string& name,
                   const std::function<absl::StatusOr<std::string>()>& act) {
  const Clock::time_point begin = Clock::now();
  BRAID_ASSIGN_OR_RETURN(const std::string more, act());
  std::cout << absl::StrFormat(R"({"phase": "%s", "seconds": %.4f%s})", name,
                               std::chrono::duration<double>(Clock::now() - begin).count(), more)
            << std::endl;
  std::string line;
  std::getline(std::cin, line);
  return absl::OkStatus();
}

absl::Status Program(braid::Session& session) {
  const std::string folder = absl::GetFlag(FLAGS_folder);
  BRAID_RETURN_IF_ERROR(Phase("start", [] { return std::string(); }));
  absl::StatusOr<braid::CompiledJob> job = absl::UnknownError("not compiled");
  BRAID_RETURN_IF_ERROR(Phase("compile", [&]() -> absl::StatusOr<std::string> {
    job = session.Compile("train", Train);
    BRAID_RETURN_IF_ERROR(job.status());
    return absl::StrFormat(R"(, "plan bytes": %d)", job->plan_bytes());
  }));
  const braid::Array x(braid::DType::kF32, {kRows, kWidth});
  BRAID_RETURN_IF_ERROR(Phase("steps", [&]() -> absl::StatusOr<std::string> {
    BRAID_RETURN_IF_ERROR(job->Run({.steps = 2, .feeds = {{"x", x}}}).status());
    return std::string();
  }));
  BRAID_RETURN_IF_ERROR(Phase("save", [&]() -> absl::StatusOr<std::string> {
    BRAID_RETURN_IF_ERROR(session.Save(folder));
    BRAID_RETURN_IF_ERROR(session.FinishSave());
    return std::string();
  }));
  return Phase("load", [&]() -> absl::StatusOr<std::string> {
    BRAID_RETURN_IF_ERROR(session.Load(folder));
    return std::string();
  });
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
