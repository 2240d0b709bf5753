// The file with a node's last events that a failed run leaves behind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace braid {

// Writes a new file of this process into `folder` and returns its path.
absl::StatusOr<std::string> WriteEventDump(const std::string& folder, uint16_t node,
                                           std::string_view text);

}  // namespace braid
