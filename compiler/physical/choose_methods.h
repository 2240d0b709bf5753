// The pass that says of each collective by which algorithm and in which chunks it is carried out.
// It stands after bucket_collectives, which settles how large they are.
#pragma once

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Sets what groups of collectives do on one node, between nodes and between hosts, by the table
// (runtime/base/collective_table.h).
PhysicalGraph ChooseMethods(PhysicalGraph graph);

}  // namespace braid::compiler
