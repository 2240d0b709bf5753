// Many seeds of one plan, dealt out to processes that are watched: what braid_sim does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/sim_runner.h"

namespace braid {

struct CampaignOptions {
  uint64_t first_seed = 1;
  uint64_t seeds = 100;
  int jobs = 1;  // processes
  // A process that spends longer on one seed is killed.
  int64_t seconds_per_seed = 60;
};

struct CampaignResult {
  std::vector<double> losses;  // of every seed
  double seconds = 0;
  // The seed that failed first in its process, and why; empty: none.
  std::string failure;
  uint64_t failing_seed = 0;
};

// Runs the seeds, compares their losses with those of the first one bit for bit, and looks whether
// what a process has in use on its heap grows from seed to seed. Stops at the first failure, be it
// that a process crashes. The calling process has one thread.
CampaignResult RunCampaign(SimRunner& runner, const CampaignOptions& options);

}  // namespace braid
