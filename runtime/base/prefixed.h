// Errors that pass a place which knows what they are about.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace braid {

// "what: the status's words", of the same code; OK stays OK.
absl::Status Prefixed(std::string_view what, const absl::Status& status);

}  // namespace braid
