// One node's part of a plan: tasks, ids, addresses, offsets, consumers. Only here are single ranks
// looked at, and only those of that node.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/plan/node_plan.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Everything that the node's runtime is told. A pure function: whichever nodes expand the two ends
// of an edge, both have the same numbers. RESOURCE_EXHAUSTED if the plan has more tasks than ids.
absl::StatusOr<plan::NodePlan> ExpandPlan(const PhysicalGraph& graph, int node);

// How many ids the job's collectives take, on all nodes alike.
int64_t NumCollectiveIds(const PhysicalGraph& graph);

}  // namespace braid::compiler
