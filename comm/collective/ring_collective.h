// Collectives in chunks from member to member, within and between nodes: all_reduce, all_gather and
// reduce_scatter around a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms",
// 2009), also by host, or in doubling steps; broadcast along a chain, all_to_all and the all_reduce
// of two between all pairs. What a member sends and receives is a list of items (chunk_schedule.h),
// which a ChunkMachine works off over lanes that are made for it.
#pragma once

#include "comm/collective/collective_algorithm.h"

namespace braid {

absl::Status CheckRing(const CollectiveSpec& spec);
absl::Status CheckExchange(const CollectiveSpec& spec);
absl::Status CheckDoubling(const CollectiveSpec& spec);
absl::Status CheckPairwise(const CollectiveSpec& spec);
absl::Status CheckHierarchical(const CollectiveSpec& spec);
int64_t RingMemoryBytes(const CollectiveSpec& spec);
absl::StatusOr<std::unique_ptr<Collective>> MakeRing(const CollectiveContext& context);

}  // namespace braid
