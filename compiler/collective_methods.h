// How collectives are carried out, and how many messages that takes. The pass choose_methods writes
// into the plan what the table here says; boxing asks it what a collective costs.
#pragma once

#include <cstdint>

#include "compiler/plan/physical_graph.h"
#include "runtime/base/collective_kind.h"

namespace braid::compiler {

struct CollectiveUse {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool is_on_one_node = false;
  int64_t members = 1;
  // Bytes of the whole vector: what is reduced, gathered or scattered, or, of an all_to_all, what
  // all members hold together.
  int64_t bytes = 0;
  int64_t block_bytes = 0;  // the most that belongs to one member; of an all_to_all unused
};

// What the members along `dim` of `placement` that have the largest parts do together.
CollectiveUse UseOf(CollectiveKind kind, const TensorLayout& source,
                    const TensorLayout& destination, const Placement& placement, int dim);

CollectiveMethod MethodOf(const CollectiveUse& use);

// Messages of a member that follow one another: each waits for the one before. The bytes of what is
// sent meanwhile are not counted here.
int64_t MessagesOf(const CollectiveUse& use, const CollectiveMethod& method);

// The fewest that any algorithm could do with: the depth of a tree; where each member has something
// else for each, one to each.
int64_t LeastMessagesOf(CollectiveKind kind, int64_t members);

}  // namespace braid::compiler
