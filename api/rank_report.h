// What a spawned rank says of its end to the process that spawned it, and which of several ends is
// the cause of the others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/process.h"
#include "runtime/base/reactor.h"

namespace braid::dist {

// That its function returned `status` at `when`, as text.
std::string FormatRankReport(const absl::Status& status, Nanoseconds when);

// From what failed by itself to what may be the consequence of another rank's failure.
enum class FailureKind : uint8_t {
  kEnded,     // by a signal that no failure elsewhere sends
  kReturned,  // an error of its own
  kGaveUp,    // abort() or exit(): often what a program does with an error
  kOfWorld,   // the error that all ranks of a failed world get
};

struct RankFailure {
  FailureKind kind = FailureKind::kEnded;
  Nanoseconds when = 0;  // when it was returned, or the end was seen
  absl::Status status;   // with the rank; OK: none

  // Whether it counts before another failure.
  bool IsBefore(const RankFailure& other) const {
    return kind != other.kind ? kind < other.kind : when < other.when;
  }
};

// How a rank failed whose process ended so at `now`; `report` is all that came from it, be it whole
// or not.
RankFailure FailureOf(int rank, const ExitStatus& end, const std::string& report, Nanoseconds now);

}  // namespace braid::dist
