// The flags by which programs of sessions and of process groups choose what they say when they
// stand still or fail.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/reactor.h"

namespace braid {

struct ReportFlags {
  std::optional<Nanoseconds> stall_timeout;  // if it is given; 0: never
  std::string event_dump;                    // a folder; "": none
};
// INVALID_ARGUMENT for a time before zero; NOT_FOUND for a folder that there is not.
absl::StatusOr<ReportFlags> ReadReportFlags();

}  // namespace braid
