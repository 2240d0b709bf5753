// The pass that drops what nobody needs. It stands after the passes that append ops.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Keeps ops without outputs (fetches, updates and other sinks), the losses and learning rates of
// Minimize requests, and what these depend on. Gradient functions build gradients of all inputs;
// those that lead nowhere end here, and graph.gradients() keeps only those that are left.
LogicalGraph Prune(LogicalGraph graph);

}  // namespace braid::compiler
