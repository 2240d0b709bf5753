#include "examples/training.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_format.h"

namespace examples {
namespace {

absl::Status CheckAtLeastOne(const char* flag, int64_t steps) {
  if (steps >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--%s=%d; at least 1 was expected", flag, steps));
}

}  // namespace

absl::Status TrainInRounds(braid::CompiledJob& train, braid::CompiledJob& evaluate,
                           const Rounds& rounds, const RoundReport& report) {
  BRAID_RETURN_IF_ERROR(CheckAtLeastOne("steps", rounds.steps));
  BRAID_RETURN_IF_ERROR(CheckAtLeastOne("report_every", rounds.report_every));
  for (int64_t done = 0; done < rounds.steps;) {
    const int64_t steps = std::min(rounds.steps - done, rounds.report_every);
    BRAID_ASSIGN_OR_RETURN(const braid::RunResult trained, train.Run({.steps = steps}));
    evaluate.SetStep(0);
    BRAID_ASSIGN_OR_RETURN(const braid::RunResult evaluated,
                           evaluate.Run({.steps = rounds.evaluation_steps}));
    done += steps;
    report(done, trained, evaluated);
  }
  return absl::OkStatus();
}

absl::Status LoadFrom(braid::Session& session, const std::string& folder) {
  return folder.empty() ? absl::OkStatus() : session.Load(folder);
}

absl::Status SaveTo(braid::Session& session, const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  BRAID_RETURN_IF_ERROR(session.Save(folder));
  BRAID_RETURN_IF_ERROR(session.FinishSave());
  std::cout << "saved to " << folder << "\n";
  return absl::OkStatus();
}

}  // namespace examples
