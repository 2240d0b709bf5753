// Bytes that nobody can guess.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace braid {

// The system's random numbers, fit for keys; at most 256 bytes.
absl::Status FillRandom(std::span<std::byte> bytes);

}  // namespace braid
