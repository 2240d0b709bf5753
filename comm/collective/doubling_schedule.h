// Collectives in as many steps as members can be doubled, for little data: a message of a ring
// takes longer than its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collective/chunk_schedule.h"

namespace braid {

// Of an all_reduce, all_gather or reduce_scatter. `counts`: the elements of each member's block.
ChunkSchedule MakeDoublingSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts);

}  // namespace braid
