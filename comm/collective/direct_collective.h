// Collectives among the members of one process: they meet, read each other's memory and write what
// they have summed there, and meet again; or the last one to arrive does the work of all, where
// waking each of the others would cost more than the work.
#pragma once

#include "comm/collective/collective_algorithm.h"

namespace braid {

absl::Status CheckDirect(const CollectiveSpec& spec);
int64_t DirectMemoryBytes(const CollectiveSpec& spec);
absl::StatusOr<std::unique_ptr<Collective>> MakeDirect(const CollectiveContext& context);

}  // namespace braid
