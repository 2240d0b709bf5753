// The pass that turns many small compute groups into few large ones, so that the overhead of an
// actor is paid once a chain. It stands after bucket_collectives and before assign_slots.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// - The members of each class (see chain_classes.h) become one group, cut after every one whose
//   output an exchange or collective reads, so that it starts at once. Mere fetches do not cut.
// - Outputs of a group that the same groups read become one register; what only the chain itself
//   reads becomes scratch.
// - Variables of one placement that the same groups read and update become one group.
// - Control edges go where others already order the same tasks.
// INTERNAL if the graph has a cycle.
absl::StatusOr<PhysicalGraph> FormChains(PhysicalGraph graph);

}  // namespace braid::compiler
