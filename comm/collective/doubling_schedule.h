// Collectives in as many steps as members can be doubled, for little data: a message of a ring
// takes longer than its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/collective/chunk_schedule.h"

namespace braid {

// Of all kinds but an all_to_all. `counts`: the elements of each member's block.
ChunkSchedule MakeDoublingSchedule(const CollectiveSpec& spec, const std::vector<int64_t>& counts);

}  // namespace braid
