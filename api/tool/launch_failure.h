// Why a launch ends badly, and which of several failures is the cause of the others.
#pragma once

#include <string>

#include "runtime/base/reactor.h"

namespace braid {

struct LaunchFailure {
  std::string cause;   // "rank 3 (pid 4711) failed first: signal 9 (Killed)"
  int exit_code = 1;   // of what failed, as a shell says it
  std::string output;  // what it had printed, if nobody has seen it yet
  // Not what a program returns because it has lost another, which it may say before the end of that
  // other is known here.
  bool is_own = true;
  // When it was seen, by the clock of its machine; of a process, before others could see its end.
  Nanoseconds when = 0;

  // Of two whose times are of one clock.
  bool CountsBefore(const LaunchFailure& other) const {
    return is_own != other.is_own ? is_own : when < other.when;
  }
};

// How a launch ended, or an attempt of it.
struct LaunchOutcome {
  int exit_code = 0;
  std::string output;  // of what failed first
  std::string cause;   // "" if all ended well by themselves
};

}  // namespace braid
