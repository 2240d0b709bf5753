// Broadcasts by chunks: which member passes to which what it got.
#pragma once

#include "comm/collective/chunk_schedule.h"

namespace braid {

// By `doubling` a binomial tree; else a chain, in the order of ranks or, by `hierarchical`, host
// after host.
ChunkSchedule MakeBroadcastSchedule(const CollectiveSpec& spec);

}  // namespace braid
