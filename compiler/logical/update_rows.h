// Updates of tables whose rows are looked up: only those rows.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Before micro-batches: where the gradient of a variable is zeros with rows added to it, at most a
// quarter as many as it has, and nobody but its update reads it, the update does these rows alone
// (OpDef::RowForm), so that time, memory and bytes follow the batch and not the table. The numbers
// are the same, but for the order of sums between devices. In jobs without micro-batches.
LogicalGraph UpdateRows(LogicalGraph graph);

}  // namespace braid::compiler
