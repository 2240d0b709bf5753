// Which errors a world gives to its ranks: what failed may be another rank. Who compares the errors
// of several ranks looks for one that is no consequence of another's.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace braid::dist {

constexpr char kWorldError[] = "braid::dist::World";  // the payload that they carry

inline absl::Status MarkWorldError(absl::Status status) {
  if (!status.ok()) status.SetPayload(kWorldError, absl::Cord("has failed"));
  return status;
}

inline bool IsWorldError(const absl::Status& status) {
  return status.GetPayload(kWorldError).has_value();
}

}  // namespace braid::dist
