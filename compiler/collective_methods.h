// What collectives of a plan are, for the table that says how they are carried out, and how many
// messages that takes. The pass choose_methods writes into the plan what the table says; boxing
// asks what a collective costs.
#pragma once

#include <cstdint>

#include "compiler/machine.h"
#include "compiler/plan/physical_graph.h"
#include "runtime/base/collective_table.h"

namespace braid::compiler {

// What the members along `dim` of `placement` that have the largest parts do together.
CollectiveUse UseOf(CollectiveKind kind, const TensorLayout& source,
                    const TensorLayout& destination, const Placement& placement, int dim);

// How many hosts the members along `dim` are on, if it is so with all of them that NumHostsAlike
// says; else 1.
int64_t HostsAlong(const Machine& machine, const Placement& placement, int dim);

// Messages of a member that follow one another: each waits for the one before. The bytes of what is
// sent meanwhile are not counted here.
int64_t MessagesOf(const CollectiveUse& use, const CollectiveMethod& method);

// The fewest that any algorithm could do with: the depth of a tree; where each member has something
// else for each, one to each.
int64_t LeastMessagesOf(CollectiveKind kind, int64_t members);

}  // namespace braid::compiler
