// A whole cluster in one thread, as its users start it: a master's session and the services of the
// other nodes, each a process of one simulated world, joined by simulated TCP. A seed draws order,
// delays and splits, and a plan of faults says what goes wrong.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"
#include "tests/simulation/sim_machines.h"

namespace braid {

struct SimClusterOptions {
  uint64_t seed = 1;
  std::vector<int> devices = {1, 1, 1};  // of each node
  std::vector<std::string> kinds = {};   // of them, by node; empty: CPUs
  bool collects_between_nodes = false;   // those that lag
  std::vector<SimFault> faults = {};
  std::function<void(Job&)> record;  // the job, which fetches "loss"
  // A user's own operators and kernels, as MainOptions::extend; may be empty.
  std::function<absl::Status(OpRegistry&, KernelRegistry&)> extend = {};
  int64_t steps = 3;
  // If not "": where the program saves before its last step, and loads after it to make that step
  // again.
  std::string folder = "";
  std::string other_checkpoint = "";  // that kOtherFiles brings: the same job's after a step less
  Nanoseconds join_timeout = 6 * kSecond;
  Nanoseconds limit = 300 * kSecond;  // a node that has not ended by then hangs
};

SimOutcome RunSimCluster(const SimClusterOptions& options);

// Whether the outcome is what the faults allow: every survivor has ended in time, and not with OK
// unless the job could do without; all that can still talk to each other name the same cause; who
// has lost the master says so. "" or what is wrong. Without a fault: all OK.
std::string CheckOutcome(const SimClusterOptions& options, const SimOutcome& outcome);

}  // namespace braid
