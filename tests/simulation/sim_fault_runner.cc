#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_runner.h"

namespace braid {
namespace {

// One seed in as many has no fault, so that its losses are compared.
constexpr uint64_t kFaultlessEvery = 8;

class FaultRunner final : public SimRunner {
 public:
  explicit FaultRunner(const SimPlan& plan) : plan_(plan) {}

  // A run without a fault says how long one takes and what its losses are.
  absl::Status Prepare() {
    const SimClusterOptions options = OptionsOf(1);
    const SimOutcome outcome = RunSimCluster(options);
    if (const std::string wrong = CheckOutcome(options, outcome); !wrong.empty()) {
      return absl::InternalError("without a fault: " + wrong);
    }
    horizon_ = std::max_element(outcome.nodes.begin(), outcome.nodes.end(),
                                [](const SimNodeOutcome& a, const SimNodeOutcome& b) {
                                  return a.ended < b.ended;
                                })
                   ->ended;
    losses_ = outcome.losses;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Run(uint64_t seed) override {
    SimClusterOptions options = OptionsOf(seed);
    if (seed % kFaultlessEvery != 0) {
      options.faults = {DrawFault(seed, static_cast<int>(plan_.devices.size()), horizon_)};
    }
    const SimOutcome outcome = RunSimCluster(options);
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
            .record = plan_.record,
            .extend = plan_.extend};
  }

  const SimPlan plan_;
  Nanoseconds horizon_ = 0;
  std::vector<double> losses_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SimRunner>> MakeFaultRunner(const SimPlan& plan) {
  auto runner = std::make_unique<FaultRunner>(plan);
  if (absl::Status status = runner->Prepare(); !status.ok()) return status;
  return runner;
}

}  // namespace braid
