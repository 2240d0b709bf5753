// What a save costs training: trains GPT-2 with AdamW, saves, and goes on with steps until the
// checkpoint has its name. Prints the seconds of a median step before, of the call of Save, of each
// step until the end of the save, and in all; and the process's peak memory before and after.
//
//   build/release/bin/save_bench --text=shakespeare.txt --folder=/tmp/saved --devices=cpu:2
//   build/release/bin/save_bench ... --from=/tmp/saved     # and loads first

#include <braid/braid.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "examples/gpt_model.h"
#include "runtime/base/process_usage.h"
#include "runtime/data/text_dataset.h"

ABSL_FLAG(std::string, text, "", "The text that it reads");
ABSL_FLAG(std::string, folder, "", "Where to save; a new folder");
ABSL_FLAG(std::string, from, "", "A folder to load first; \"\": none");
ABSL_FLAG(std::string, size, "gpt2", "Of the model: tiny, small, gpt2, gpt2-medium, gpt2-large");
ABSL_FLAG(int64_t, batch, 4, "Windows per step, over all devices");
ABSL_FLAG(int64_t, context, 128, "Characters in a window");
ABSL_FLAG(int64_t, steps, 5, "Before the save");

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

absl::Status Program(braid::Session& session) {
  const std::string folder = absl::GetFlag(FLAGS_folder);
  const std::string latest = folder + "/latest";
  if (folder.empty() || std::filesystem::exists(latest)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--folder=%s: a folder without checkpoints was expected", folder));
  }
  BRAID_ASSIGN_OR_RETURN(examples::GptOptions options,
                         examples::GptOfSize(absl::GetFlag(FLAGS_size)));
  options.batch = absl::GetFlag(FLAGS_batch);
  options.context = absl::GetFlag(FLAGS_context);
  options.train = braid::TextFile(absl::GetFlag(FLAGS_text), {.context = options.context});
  BRAID_ASSIGN_OR_RETURN(auto job, session.Compile("train", [&](braid::Job& job) {
    examples::TrainGpt(job, options);
  }));
  const auto step = [&]() -> absl::StatusOr<double> {
    const Clock::time_point begin = Clock::now();
    BRAID_RETURN_IF_ERROR(job.Run().status());
    return SecondsSince(begin);
  };
  if (const std::string from = absl::GetFlag(FLAGS_from); !from.empty()) {
    const Clock::time_point begin = Clock::now();
    BRAID_RETURN_IF_ERROR(session.Load(from));
    std::printf("load: %.2f s, peak memory %.0f MiB\n", SecondsSince(begin), braid::PeakMiB());
  }
  BRAID_RETURN_IF_ERROR(step().status());
  std::vector<double> before;
  for (int64_t i = 0; i < absl::GetFlag(FLAGS_steps); ++i) {
    BRAID_ASSIGN_OR_RETURN(before.emplace_back(), step());
  }
  std::sort(before.begin(), before.end());
  const double median = before[before.size() / 2];
  std::printf("steps before: %.3f s (median), %.3f s at most, peak memory %.0f MiB\n", median,
              before.back(), braid::PeakMiB());
  const Clock::time_point begin = Clock::now();
  BRAID_RETURN_IF_ERROR(session.Save(folder));
  std::printf("Save: %.3f s, %.2f of a step\n", SecondsSince(begin), SecondsSince(begin) / median);
  int64_t steps = 0;
  double slowest = 0;
  while (!std::filesystem::exists(latest)) {
    BRAID_ASSIGN_OR_RETURN(const double time, step());
    slowest = std::max(slowest, time);
    ++steps;
  }
  BRAID_RETURN_IF_ERROR(session.FinishSave());
  std::printf("on the disk after %.3f s; %d steps meanwhile, the slowest %.3f s, %.2f of a step\n",
              SecondsSince(begin), static_cast<int>(steps), slowest, slowest / median);
  std::printf("peak memory %.0f MiB\n", braid::PeakMiB());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return braid::Main(argc, argv, Program); }
