// Batch norms of jobs that do not train go into the weights of the convolutions before them.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// For each of FoldedNorms (fusion_patterns.h) whose numbers and weights depend on variables alone,
// which no op of the graph updates: the weights are multiplied, each output's by its factor, and
// the norm's shift becomes the addend. Nobody else may want what lies between. The products stay
// the same until variables change (physical/keep_steady.h). Needs placements; of f32 and f64.
LogicalGraph FoldNorms(LogicalGraph graph);

}  // namespace braid::compiler
