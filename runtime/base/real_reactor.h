// What the real environment makes: reactors with a thread each.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/reactor.h"

namespace braid {

// CLOCK_MONOTONIC, the clock of timerfd.
Nanoseconds MonotonicClock();

// As Environment::StartReactor. `start`: when its time began, by MonotonicClock.
std::unique_ptr<Reactor> StartRealReactor(std::string_view name, Nanoseconds start);

}  // namespace braid
