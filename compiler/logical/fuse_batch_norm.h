// Writes batch normalization, what is added to it and the rectifier after it as one operator, since
// each by itself would read and write whole tensors.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// relu(batch_norm(x)) becomes batch_norm(x) {relu=true}, and relu(batch_norm(x) + r) the same with
// r as its sixth input, where nobody else wants what lies between. batch_norm_sums and
// batch_norm_dx of the first form then take what arrives at the rectifier: they find from x where
// it let through. Ops that the user put on different devices, or whose layout between was asked
// for, stay apart. Needs placements.
LogicalGraph FuseBatchNorm(LogicalGraph graph);

}  // namespace braid::compiler
