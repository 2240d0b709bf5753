// Sums in which every member sends to every other: what a ring sends, in two steps.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collective/chunk_schedule.h"

namespace braid {

// Of an all_reduce or a reduce_scatter. `counts`: the elements of each member's block.
ChunkSchedule MakePairwiseSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts);

}  // namespace braid
