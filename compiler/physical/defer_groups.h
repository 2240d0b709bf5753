// Which groups may wait, and the pass that says so of them. The pass stands after plan_memory,
// whose edges count.
#pragma once

#include <vector>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// By group: a compute group that acts once a step and that nothing in its step waits for but others
// of this kind: updates of variables, metrics.
std::vector<bool> FindDeferrable(const PhysicalGraph& graph);

// Marks them. On its thread such a group acts when no other can, so that there is work left for the
// time in which the last gradients travel, or in which a peer is late.
PhysicalGraph DeferGroups(PhysicalGraph graph);

}  // namespace braid::compiler
