// The pass that gives every register its number of slots: the credits from which pipelining
// follows. It stands after chains, which decide what is a register at all, and before plan_memory.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// - variables: 1; the owner goes on when the update is done;
// - written on an input stream: 2, so that a step is read while the last one is used;
// - of several pieces a step (micro-batches): as many as can be under way between producer and
//   consumer when the pipeline is full, 1 + half the transfers between stages that lie between
//   them, plus 1 to cover those transfers' time; 2 where a transfer reads or writes it; never more
//   than the pieces of a step;
// - control edges: their initial tokens and one more;
// - everything else 1.
// Then one abstract step is run. Where groups wait for each other for slots, the smallest register
// of the cycle gets one more (a consumer once a step between forward and backward needs all
// micro-batches kept). INTERNAL naming the cycle if no slot is waited for in it.
absl::StatusOr<PhysicalGraph> AssignSlots(PhysicalGraph graph);

}  // namespace braid::compiler
