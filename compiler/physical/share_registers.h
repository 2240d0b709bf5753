// Which registers share bytes: part of plan_memory.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/physical/step_order.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Registers on one set of devices that are laid out together.
struct Pool {
  std::vector<DeviceId> devices;
  int64_t bytes = 0;
  std::vector<std::pair<GroupRegisterId, int64_t>> offsets;  // inside the pool
};

struct Sharing {
  std::vector<Pool> pools;
  std::vector<StepOrder::Constraint> edges;  // control edges that order what shares bytes
};

// Pools of registers that hold one piece a step in one slot. With `may_add_edges`, tasks of one
// compute stream, which run one after the other anyway, may be held to the graph's order by edges;
// never so that one waits for a transfer for which it would not have waited. INTERNAL if the groups
// have no order.
absl::StatusOr<Sharing> ShareRegisters(const PhysicalGraph& graph, bool may_add_edges);

}  // namespace braid::compiler
