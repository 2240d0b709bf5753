// Runs plans under many seeds and says how many a second; a seed that fails is printed with the
// command that replays it.
//
//   braid_sim --seeds 10000 --jobs 2            orders of messages and acts
//   braid_sim --device=lagging --seeds 10000    the same on devices with streams
//   braid_sim --faults --seeds 7200 --jobs 2    whole clusters over simulated sockets, with faults

#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "tests/runtime/temp_dir.h"
#include "tests/simulation/sim_campaign.h"
#include "tests/simulation/sim_plans.h"
#include "tests/simulation/sim_runner.h"

ABSL_FLAG(uint64_t, seeds, 1000, "seeds of each plan");
ABSL_FLAG(uint64_t, first, 1, "the first seed");
ABSL_FLAG(std::string, plan, "all", "the plan's name, or all");
ABSL_FLAG(int, jobs, 1, "processes");
ABSL_FLAG(std::string, device, "cpu",
          "cpu; lagging: devices that do what they are told later; mixed: every other node's lag; "
          "network: all lag, and do collectives between nodes themselves");
ABSL_FLAG(bool, faults, false,
          "whole clusters over simulated sockets, with a fault drawn by the seed");

namespace braid {
namespace {

// What the program was called with, for the line that replays a seed.
struct Call {
  std::string program;
};

absl::StatusOr<std::unique_ptr<SimRunner>> MakeRunner(const SimPlan& plan) {
  if (absl::GetFlag(FLAGS_faults)) return MakeFaultRunner(plan);
  auto compiled = CompileSimPlan(plan);
  if (!compiled.ok()) return compiled.status();
  return MakeLoopbackRunner({.plan = *std::move(compiled), .make_transports = {}});
}

bool RunPlan(const SimPlan& plan, const Call& call) {
  std::cout << absl::StrFormat("%-9s on %-4s", plan.name, absl::StrJoin(plan.devices, "+"))
            << std::flush;
  const auto runner = MakeRunner(plan);
  if (!runner.ok()) {
    std::cout << "  cannot be run: " << runner.status() << std::endl;
    return false;
  }
  const CampaignOptions options = {.first_seed = absl::GetFlag(FLAGS_first),
                                   .seeds = absl::GetFlag(FLAGS_seeds),
                                   .jobs = absl::GetFlag(FLAGS_jobs)};
  const CampaignResult result = RunCampaign(**runner, options);
  if (!result.failure.empty()) {
    std::cout
        << absl::StrFormat(
               "  seed %d failed: %s\n  again: %s%s --device=%s --plan %s --first %d --seeds 1\n",
               result.failing_seed, result.failure, call.program,
               absl::GetFlag(FLAGS_faults) ? " --faults" : "", absl::GetFlag(FLAGS_device),
               plan.name, result.failing_seed)
        << std::flush;
    return false;
  }
  std::cout << absl::StrFormat("  %d seeds in %.1f s, %.0f a second; all have the losses %s\n",
                               options.seeds, result.seconds,
                               static_cast<double>(options.seeds) / result.seconds,
                               absl::StrJoin(result.losses, " ",
                                             [](std::string* out, double loss) {
                                               absl::StrAppendFormat(out, "%.9g", loss);
                                             }))
            << std::flush;
  return true;
}

int RunPlans(const Call& call) {
  if (absl::GetFlag(FLAGS_seeds) < 1 || absl::GetFlag(FLAGS_jobs) < 1) {
    std::cerr << "--seeds and --jobs are at least 1" << std::endl;
    return 2;
  }
  const TempDir folder;
  std::vector<SimPlan> plans = MakeSimPlans(folder.path());
  if (const std::string name = absl::GetFlag(FLAGS_plan); name != "all") {
    const auto found = FindSimPlan(plans, name);
    if (!found.ok()) {
      std::cerr << "--plan: " << found.status().message() << std::endl;
      return 2;
    }
    plans = {*found};
  }
  std::map<std::string, DeviceMix> mixes;
  for (const DeviceMix mix :
       {DeviceMix::kCpu, DeviceMix::kLagging, DeviceMix::kMixed, DeviceMix::kNetwork}) {
    mixes[NameOf(mix)] = mix;
  }
  const auto mix = mixes.find(absl::GetFlag(FLAGS_device));
  if (mix == mixes.end()) {
    std::cerr << "--device=" << absl::GetFlag(FLAGS_device)
              << "; cpu, lagging, mixed or network was expected" << std::endl;
    return 2;
  }
  bool is_good = true;
  for (const SimPlan& plan : plans) {
    is_good = RunPlan(WithDevices(plan, mix->second), call) && is_good;
  }
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Runs plans in simulated clusters, in orders drawn by seeds.");
  absl::ParseCommandLine(argc, argv);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return braid::RunPlans({.program = argv[0]});
}
