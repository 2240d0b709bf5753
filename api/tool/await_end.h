// How the tool waits for what has no limit of its own: a job takes as long as it takes.
#pragma once

#include "runtime/base/reactor.h"

namespace braid {

inline void AwaitEnd(Environment& environment, Event& event) {
  constexpr Nanoseconds kHour = 3600 * kSecond;
  while (!environment.Await(event, kHour).ok()) {
  }
}

}  // namespace braid
