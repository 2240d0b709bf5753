// The pass that turns dropout off in jobs that do not train. It stands before autograd.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Unless graph.training, every `dropout` becomes `identity`. Recording cannot decide this: Minimize
// may come after the dropout.
LogicalGraph DisableDropout(LogicalGraph graph);

}  // namespace braid::compiler
