#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "tests/runtime/temp_dir.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_runner.h"

namespace braid {
namespace {

// One seed in as many has no fault, so that its losses are compared.
constexpr uint64_t kFaultlessEvery = 8;
// One seed in as many saves and loads.
constexpr uint64_t kSavingEvery = 3;

class FaultRunner final : public SimRunner {
 public:
  explicit FaultRunner(const SimPlan& plan) : plan_(plan) {}

  // Runs without a fault say how long one takes and what its losses are.
  absl::Status Prepare() {
    SimClusterOptions shorter = OptionsOf(1);
    shorter.folder = folder_ / "shorter";
    shorter.steps -= 1;
    BRAID_RETURN_IF_ERROR(RunFaultless(shorter).status());
    BRAID_ASSIGN_OR_RETURN(const SimOutcome plain, RunFaultless(OptionsOf(1)));
    SimClusterOptions saves = OptionsOf(1);
    saves.folder = folder_ / "first";
    BRAID_ASSIGN_OR_RETURN(const SimOutcome saving, RunFaultless(saves));
    horizon_ = EndOf(plain);
    saving_horizon_ = EndOf(saving);
    losses_ = plain.losses;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Run(uint64_t seed) override {
    SimClusterOptions options = OptionsOf(seed);
    const bool saves = seed % kSavingEvery == 0;
    // Each process of a campaign has a folder.
    const std::string folder = folder_ / absl::StrFormat("process %d", getpid());
    if (saves) options.folder = folder + "/saved";
    options.other_checkpoint = folder_ / absl::StrFormat("shorter/step-%d", options.steps - 2);
    if (seed % kFaultlessEvery != 0) {
      options.faults = {DrawFault(seed, static_cast<int>(plan_.devices.size()),
                                  saves ? saving_horizon_ : horizon_,
                                  saves ? SimFault::Kind::kOtherFiles : SimFault::Kind::kNoMemory)};
    }
    const SimOutcome outcome = RunSimCluster(options);
    std::filesystem::remove_all(folder);
    if (const std::string wrong = CheckOutcome(options, outcome); !wrong.empty()) {
      return absl::InternalError(absl::StrFormat(
          "%s: %s", options.faults.empty() ? "without a fault" : options.faults[0].ToString(),
          wrong));
    }
    return outcome.losses.empty() ? losses_ : outcome.losses;
  }

 private:
  SimClusterOptions OptionsOf(uint64_t seed) const {
    return {.seed = seed,
            .devices = plan_.devices,
            .kinds = plan_.kinds,
            .collects_between_nodes = plan_.collects_between_nodes,
            .record = plan_.record,
            .extend = plan_.extend};
  }

  static absl::StatusOr<SimOutcome> RunFaultless(const SimClusterOptions& options) {
    SimOutcome outcome = RunSimCluster(options);
    const std::string wrong = CheckOutcome(options, outcome);
    if (!wrong.empty()) return absl::InternalError("without a fault: " + wrong);
    return outcome;
  }

  static Nanoseconds EndOf(const SimOutcome& outcome) {
    return std::max_element(
               outcome.nodes.begin(), outcome.nodes.end(),
               [](const SimNodeOutcome& a, const SimNodeOutcome& b) { return a.ended < b.ended; })
        ->ended;
  }

  const SimPlan plan_;
  const TempDir folder_;
  Nanoseconds horizon_ = 0, saving_horizon_ = 0;
  std::vector<double> losses_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SimRunner>> MakeFaultRunner(const SimPlan& plan) {
  auto runner = std::make_unique<FaultRunner>(plan);
  BRAID_RETURN_IF_ERROR(runner->Prepare());
  return runner;
}

}  // namespace braid
