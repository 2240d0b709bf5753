// Collectives of members on several hosts with several members each, as many on each: within a host
// every two members exchange, and between hosts there is a ring for each member of a host. So the
// bytes that leave a host are the fewest possible, wherever ranks are.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collective/chunk_schedule.h"

namespace braid {

// Of an all_reduce, all_gather or reduce_scatter. `counts`: the elements of each member's block.
ChunkSchedule MakeHierarchicalSchedule(const CollectiveSpec& spec,
                                       const std::vector<int64_t>& counts);

}  // namespace braid
