// Who takes part in a world of process groups, and where its ranks meet.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "api/dist.h"
#include "api/network.h"

namespace braid::dist {

// None: a world of one. Errors name the variable or the part of the address, its value and what was
// expected.
absl::StatusOr<std::optional<NetworkOptions>> FindWorld(const InitOptions& options);

}  // namespace braid::dist
