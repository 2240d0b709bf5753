// The pass that folds sums into the products that they are sums of: the bias of a linear layer, a
// residual, what other gradients add up to. It stands behind FormChains, which says what nobody
// else reads, and before memory is planned.
#pragma once

#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// On devices that add to products (DeviceKind::adds_to_products): where a kernel of a chain adds a
// row or a tensor of the same layout to what a `matmul` by one matrix made, and nobody else reads
// the product, both become one `matmul_add` in the place of the sum. It may take one of each. A
// product of addends (P) stays as it is.
PhysicalGraph FoldSums(PhysicalGraph graph, const OpRegistry& registry);

}  // namespace braid::compiler
