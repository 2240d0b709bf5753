// A compiled plan under seeds: one simulated cluster a seed, from joining to closing, all in the
// calling thread. The plan is compiled once; what a seed costs is the cluster's own work.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/transport.h"
#include "compiler/plan/physical_graph.h"
#include "runtime/device/device_kinds.h"
#include "runtime/kernels/kernel.h"
#include "tests/simulation/sim_plans.h"
#include "tests/support/lagging_device.h"

namespace braid {

// What a seed does with a plan. A cluster of another make (with links that break, say) is one more
// of these.
class SimRunner {
 public:
  virtual ~SimRunner() = default;
  // The losses; or what was wrong first: a failure of a node, a credit or byte that was not the
  // actor's to use, a wait that nothing can end (with what every actor then waits for).
  virtual absl::StatusOr<std::vector<double>> Run(uint64_t seed) = 0;
};

// What a cluster is given.
struct CompiledSimPlan {
  std::vector<int> devices;        // of each node
  std::vector<std::string> kinds;  // of them, by node
  DeviceKinds device_kinds;
  compiler::PhysicalGraph physical;
  // Nodes that are sent another plan than the others: mutations.
  std::map<int, compiler::PhysicalGraph> other = {};
  OpRegistry operators;
  KernelRegistry kernels;
};
// `fault`: of the devices that lag.
absl::StatusOr<std::shared_ptr<const CompiledSimPlan>> CompileSimPlan(
    const SimPlan& plan, LaggingFault fault = LaggingFault::kNone);

// The seed of the program, whose numbers do not depend on the simulation's.
constexpr uint64_t kSimProgramSeed = 3;
// The steps of each Run: the second finds out whether the first gave back its credits.
inline const std::vector<int64_t> kSimRuns = {2, 1};

struct LoopbackRunnerOptions {
  std::shared_ptr<const CompiledSimPlan> plan;  // shared by runners
  // Each node's transports; empty: MakeTransports.
  std::function<std::vector<std::unique_ptr<Transport>>(const TransportOptions&)> make_transports;
  std::vector<int64_t> runs = kSimRuns;
};
// Nodes that meet on a LoopbackNetwork. Credits and shared bytes are checked at every act.
std::unique_ptr<SimRunner> MakeLoopbackRunner(LoopbackRunnerOptions options);

// Whole clusters over simulated sockets (sim_cluster.h), of which most seeds draw a fault at any
// time from the start to the end, and some save and load. A run that the fault ends has no losses
// of its own; what is returned then are those of a run without faults. The error is what
// CheckOutcome says, or the fault-free run's.
absl::StatusOr<std::unique_ptr<SimRunner>> MakeFaultRunner(const SimPlan& plan);

}  // namespace braid
