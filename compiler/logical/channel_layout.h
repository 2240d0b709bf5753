// How tensors with channels lie in memory, and which convolutions on CPUs go by Winograd's
// algorithm: the table is compiler/plan/channel_layouts.h.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler/plan/channel_blocks.h"
#include "graph/logical_graph.h"

namespace braid::compiler {

struct ChannelLayoutOptions {
  bool winograd = true;  // where the table allows it; else all sums stay as they stand
  int64_t channel_block = kWideBlock;  // channels of the widest blocks
  // Whether chains of convolutions whose channels are often no multiple of a wide block's get
  // narrow blocks, or one of all channels. Where types become narrower later, they do not: CPUs
  // multiply these in wide vectors only.
  bool may_fit_blocks = true;
  // Devices that want channels last, one block of all of them: cards, for convolutions of narrow
  // types. A graph all of which is on such has no other blocks, and none if the user wants weights
  // split that have channels.
  std::function<bool(const Placement&)> puts_channels_last = nullptr;
};

// Tensors that operators on CPUs, or on devices that want channels last, hand to each other, of
// which some prefer blocks of channels and the others take them too (by the tables, or as they are
// pointwise), become blocked, whole chains at a time. Where a chain begins or ends, ops that
// reorder are put in; a chain for which these would cost more than it gains stays plain, as does
// all that is on other kinds of devices. Needs placements; of f32, narrower floats and bytes.
LogicalGraph LayOutChannels(LogicalGraph graph, const ChannelLayoutOptions& options);

}  // namespace braid::compiler
