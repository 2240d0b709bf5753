// Says whether a PhysicalGraph can be run: invariants, which are cheap and hold after every pass,
// and the whole proof, which stands at the end: no deadlock, and no byte written while it is read.
#pragma once

#include "absl/status/status.h"
#include "compiler/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// Ids, ends and operands name what exists; parts do not overlap inside a slot; every slot is filled
// and used up within a step (rates and periods are balanced). INTERNAL naming group or register.
absl::Status VerifyInvariants(const PhysicalGraph& graph);

// After PlanMemory; the order is that of runtime.md, "No deadlock, checked". INTERNAL naming the
// cycle and the slot count that would free it, or the pair and the edge that would order it:
// - one abstract step runs to completion and ends with the initial tokens;
// - of registers that share bytes on some device, all readers of the one are done before the other
//   is written, within the step and into the next;
// - a kernel that overwrites a variable acts after all other readers of this step's value.
absl::Status Verify(const PhysicalGraph& graph, const OpRegistry& registry);

}  // namespace braid::compiler
