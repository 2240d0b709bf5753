// Writes chains of operators that stand in the table of patterns as one operator each, since each
// of them by itself would read and write whole tensors.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// For each of FusionPatterns (fusion_patterns.h) and wherever nobody else wants what lies between:
// the root takes the place of the chain. Ops that the user put on different devices, or whose
// layout between was asked for, stay apart. Needs placements.
LogicalGraph Fuse(LogicalGraph graph);

}  // namespace braid::compiler
