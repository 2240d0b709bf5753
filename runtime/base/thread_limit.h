// How many threads this process has, and whether the system lets it start more: a thread that
// cannot be started ends a program without a word.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace braid {

// As the system counts them; 0: it does not say. One that was joined may be counted for an instant
// longer.
size_t CountThreads();

// Tries it, so that whatever limits them counts; they end at once. RESOURCE_EXHAUSTED names the
// limits and their values.
absl::Status CheckThreads(int more);

}  // namespace braid
