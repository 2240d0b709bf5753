// The pass that settles what depends on whether the job trains. It stands before autograd.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Unless graph.training, every `dropout` becomes `identity`. Whoever reads an `if_training` reads
// the operand that holds instead, and a variable that would then be assigned to itself is not
// assigned to. Recording cannot decide this: Minimize may come after.
LogicalGraph SettleTraining(LogicalGraph graph);

}  // namespace braid::compiler
