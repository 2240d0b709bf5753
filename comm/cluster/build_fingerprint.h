// Tells two builds of a program apart.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace braid {

// Of a program's file: its size and CRC32C, "8123456-1f2e3d4c".
absl::StatusOr<std::string> FileFingerprint(const std::string& path);
// Of the running program's.
absl::StatusOr<std::string> BuildFingerprint();

}  // namespace braid
