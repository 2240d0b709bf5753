// The whole proof that a PhysicalGraph can be run, which stands at the end: no deadlock, and no
// byte written while it is read. The cheap part, which holds after every pass, is
// plan/invariants.h.
#pragma once

#include "absl/status/status.h"
#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// After PlanMemory; the order is that of runtime.md, "No deadlock, checked". INTERNAL naming the
// cycle and the slot count that would free it, or the pair and the edge that would order it:
// - one abstract step runs to completion and ends with the initial tokens;
// - of registers that share bytes on some device, all readers of the one are done before the other
//   is written, within the step and into the next;
// - of collectives that devices do among themselves, every device comes to the same one next;
// - kernels whose results are kept read nothing but variables that the job does not write, and what
//   is kept;
// - a kernel that overwrites a variable acts after all other readers of this step's value.
absl::Status Verify(const PhysicalGraph& graph, const OpRegistry& registry);

}  // namespace braid::compiler
