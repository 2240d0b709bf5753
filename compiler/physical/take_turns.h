// The pass that lets kernels of a compute group take turns on parts of their elements. It stands
// after plan_memory, since kernels whose bytes overlap in another way than element by element must
// run one after another.
#pragma once

#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// Sets TaskGroup::turns: runs of neighbouring kernels that have the same number of elements, more
// than stay in the cache anyway, which run every step and whose definitions say that they work in
// parts (OpDef::Parts). A run ends before a kernel that would overwrite what another has not read,
// or read what another has not made. What is summed depends on no turns, so results are the same
// without them.
PhysicalGraph TakeTurns(PhysicalGraph graph, const OpRegistry& registry);

}  // namespace braid::compiler
