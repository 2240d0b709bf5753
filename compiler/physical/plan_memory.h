// The pass that says where in a device's memory everything is. It stands after assign_slots, since
// slots multiply bytes, and before verification, since it may add edges that order shared bytes.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// Sets the offsets of parts, registers and scratch, all multiples of 64 bytes. Registers without a
// common device may have the same bytes. Of those with common devices, two share bytes only if both
// hold one slot a step and all readers of the one are done before the other is written, within the
// step and into the next; where no path of edges says so, a control edge is added, and only between
// tasks that run one after the other anyway. INTERNAL if the groups have no order.
absl::StatusOr<PhysicalGraph> PlanMemory(PhysicalGraph graph, const OpRegistry& registry);

}  // namespace braid::compiler
