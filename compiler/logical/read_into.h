// Variables that are read from files: into their own memory.
#pragma once

#include <functional>

#include "graph/logical_graph.h"
#include "graph/placement.h"

namespace braid::compiler {

// Where a variable is assigned what an operator reads from files, and nobody else sees that, the
// operator overwrites the variable (OpDef::ReadsInto), so that no second copy of it needs memory.
// Only where `may` says that devices work in the memory into which the host reads.
LogicalGraph ReadIntoVariables(LogicalGraph graph,
                               const std::function<bool(const Placement&)>& may);

}  // namespace braid::compiler
