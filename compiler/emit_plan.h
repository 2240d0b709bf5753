// The last step of compilation: one node's slice of the Plan. Only here are single ranks looked at,
// and only those of that node.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/physical_graph.h"
#include "compiler/plan.pb.h"

namespace braid::compiler {

constexpr uint32_t kPlanVersion = 1;

struct EmitOptions {
  int node = 0;
  uint64_t seed = 0;
};

// Ids, addresses, offsets, consumers: everything that the node's runtime is told. Deterministic.
// RESOURCE_EXHAUSTED if the plan has more tasks than ids.
absl::StatusOr<plan::Plan> EmitPlan(const PhysicalGraph& graph, const EmitOptions& options);

// Of the whole job, equal on all nodes.
uint64_t FingerprintOf(const PhysicalGraph& graph);

}  // namespace braid::compiler
