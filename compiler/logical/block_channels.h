// Keeps chains of convolutions and what stands between them in blocks of channels.
#pragma once

#include "graph/logical_graph.h"

namespace braid::compiler {

// Tensors that operators hand to each other, of which some prefer blocks of channels and the others
// take them too (OpDef::PrefersChannelBlocks, ChannelBlocks, Pointwise), become blocked, whole
// chains at a time. Where a chain begins or ends, ops that reorder are put in; a chain for which
// these would cost more than it gains stays plain. Needs placements; f32 and narrower only.
LogicalGraph BlockChannels(LogicalGraph graph);

}  // namespace braid::compiler
