// What each layer of a job costs, for --dry_run and --explain.
#pragma once

#include <string>

#include "graph/logical_graph.h"

namespace braid {

// A line a layer, in the order of the program: its parameters, the bytes of what its operators give
// in a step, and their floating-point operations, backward pass and updates included; all devices
// and micro-batches together, before memory is shared. A layer is a scope with trainable variables,
// or one that has 1 % of the operations. "" for a graph without trainable variables.
std::string LayerTable(const LogicalGraph& graph);

}  // namespace braid
