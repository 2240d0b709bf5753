// A world of process groups in one thread: every rank's program as its process would run it, joined
// by simulated TCP, over links of that or of the loopback. A seed draws order, delays and splits,
// and a plan of faults says what goes wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "api/dist.h"
#include "runtime/base/reactor.h"
#include "tests/simulation/sim_machines.h"

namespace braid {

struct SimWorldOptions {
  uint64_t seed = 1;
  int ranks = 3;
  int hosts = 0;                      // that ranks are said to be on in turn; 0: one
  std::string transport = "tcp";      // or "loopback", as of ranks in one process; it has no faults
  std::vector<SimFault> faults = {};  // of machines
  // Of every rank; it waits for nothing but its calls. The environment is its process's.
  std::function<absl::Status(dist::World&, const Environment&)> program;
  Nanoseconds join_timeout = 6 * kSecond;
  Nanoseconds limit = 300 * kSecond;  // a rank that has not ended by then hangs
};

struct SimWorldOutcome : SimOutcome {  // a node's status is that of Init or Close
  std::vector<absl::Status> programs;  // by rank; UNAVAILABLE where none began
};

SimWorldOutcome RunSimWorld(const SimWorldOptions& options);

}  // namespace braid
