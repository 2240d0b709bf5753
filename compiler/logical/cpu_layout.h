// How tensors lie in the memory of CPUs, and which convolutions go by Winograd's algorithm: the
// table is compiler/plan/cpu_layouts.h.
#pragma once

#include <cstdint>

#include "compiler/plan/channel_blocks.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

struct CpuLayoutOptions {
  bool winograd = true;  // where the table allows it; else all sums stay as they stand
  int64_t channel_block = kWideBlock;  // channels of the widest blocks
  // Whether chains of convolutions whose channels are often no multiple of a wide block's get
  // narrow blocks, or one of all channels. Where types become narrower later, they do not: CPUs
  // multiply these in wide vectors only.
  bool may_fit_blocks = true;
};

// Tensors that operators on CPUs hand to each other, of which some prefer blocks of channels and
// the others take them too (by the tables, or as they are pointwise), become blocked, whole chains
// at a time. Where a chain begins or ends, ops that reorder are put in; a chain for which these
// would cost more than it gains stays plain, as does all that is on other kinds of devices. Needs
// placements; of f32, narrower floats and bytes.
LogicalGraph LayOutForCpus(LogicalGraph graph, const CpuLayoutOptions& options);

}  // namespace braid::compiler
