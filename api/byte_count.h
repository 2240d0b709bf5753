// Numbers of bytes as flags have them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace braid {

// "4096", "80GiB". INVALID_ARGUMENT for anything else; `what` is the flag's name.
absl::StatusOr<int64_t> ParseByteCount(std::string_view what, const std::string& text);

}  // namespace braid
