// Offsets of the tensors that live only within one act of a compute group. Part of plan_memory.
#pragma once

#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

// Sets Scratch::offset. A tensor holds its bytes from the kernel that writes it to the last that
// reads it; a kernel that may work inplace writes over an operand that ends there, if both have the
// same size. Where such a kernel writes an output of the group, the operand is no scratch any more:
// it is written into the output's bytes itself, and kernels see kOutput. Best fit in kernel order,
// so the cost is n log n in the kernels. What is kept lies in an area of its own, where a tensor
// that lasts holds its bytes for good. `group` is of `graph`.
void PlanScratch(const OpRegistry& registry, const PhysicalGraph& graph, TaskGroup& group);

}  // namespace braid::compiler
