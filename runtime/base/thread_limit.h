// Whether the system lets this process start more threads: a thread that cannot be started ends a
// program without a word.
#pragma once

#include "absl/status/status.h"

namespace braid {

// Tries it, so that whatever limits them counts; they end at once. RESOURCE_EXHAUSTED names the
// limits and their values.
absl::Status CheckThreads(int more);

}  // namespace braid
