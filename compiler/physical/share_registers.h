// Which registers share bytes: part of plan_memory.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/physical/step_order.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Registers on one set of devices that are laid out together.
struct Pool {
  struct Place {
    GroupRegisterId reg = kNone;
    int64_t offset = 0;  // inside the pool
    int64_t stride = 0;  // from slot to slot
  };
  int64_t bytes = 0;
  std::vector<Place> places;
};

struct Sharing {
  std::vector<Pool> pools;
  std::vector<StepOrder::Constraint> edges;  // control edges that order what shares bytes
};

// Pools of registers whose producers do not run ahead of the step. Registers share bytes
// - step by step: all pieces of one are over before the first of the other;
// - act by act, of one slot each: the piece of an act is over before the other's of the same act,
//   and that before the next act's;
// - slot by slot, of n slots each, where a pipeline keeps n micro-batches: as act by act, but that
//   the next is n acts later. Their slots are laid out as n frames, one after the other, in each of
//   which everything has its place; so the memory is n times what one micro-batch needs. Registers
//   of fewer slots get n, if less memory is needed then.
// With `may_add_edges`, tasks of one compute stream, which run one after the other anyway, may be
// held to the graph's order by edges; never so that one waits for a transfer for which it would not
// have waited. INTERNAL if the groups have no order.
absl::StatusOr<Sharing> ShareRegisters(bool may_add_edges, PhysicalGraph& graph);

}  // namespace braid::compiler
