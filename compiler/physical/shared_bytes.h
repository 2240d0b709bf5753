// The part of verification that is about registers in the same bytes.
#pragma once

#include "absl/status/status.h"
#include "compiler/physical/step_order.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// After PlanMemory. Registers in the same bytes are never in use together: all readers of the one
// are done before the other is written, step by step, act by act or slot by slot (as
// share_registers.h says). INTERNAL naming the pair and the edge that would order it.
absl::Status CheckSharedBytes(const PhysicalGraph& graph, const StepOrder& order);

}  // namespace braid::compiler
