// Calls of process groups whose results are compared with what a plain loop over the ranks' inputs
// gives: for ranks that are threads, processes or simulated. DATA_LOSS says what was wrong.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "api/dist.h"

namespace braid {

// Every kind of call on every type and operation, of 0, 1 and 777 elements by turns, and of 1 MiB
// of some.
absl::Status CheckTypes(dist::Group& group);
// So many of these, drawn by the seed: all ranks have the same.
absl::Status CheckDrawnCalls(dist::Group& group, uint64_t seed, int calls);
// A hundred all_reduces that are under way together.
absl::Status CheckAHundredCalls(dist::World& world);
// Calls of the world, of its halves and of all in another order, of four ranks.
absl::Status CheckGroupsOfFour(dist::World& world);

}  // namespace braid
