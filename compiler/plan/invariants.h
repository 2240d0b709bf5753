// The cheap part of verification: what holds after every pass, and in every plan that a node reads.
#pragma once

#include "absl/status/status.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Ids, ends and operands name what exists; turns are of kernels of their own; parts do not overlap
// inside a slot; every slot is filled and used up within a step (acts and periods are balanced).
// INTERNAL naming group or register.
absl::Status VerifyInvariants(const PhysicalGraph& graph);

}  // namespace braid::compiler
