// What another machine's clock shows, beside this one's.
#pragma once

#include "runtime/base/reactor.h"

namespace braid {

// Learnt from some round trips: in each this machine asks, the other says what its clock shows, and
// the answer comes back. The quickest is kept, for it is wrong by at most half of its own time.
// Clocks drift, by up to some 0.1 ms a second: ask close to what is to be told.
class RemoteClock {
 public:
  // Of one round trip: when it was asked here, what the other clock showed, when the answer came.
  void Add(Nanoseconds asked, Nanoseconds there, Nanoseconds answered) {
    const Nanoseconds took = answered - asked;
    ++trips_;
    if (trips_ > 1 && took >= quickest_) return;
    quickest_ = took;
    ahead_ = there - (asked + took / 2);
  }
  int trips() const { return trips_; }
  // What this clock showed when the other one showed `there`. After at least one round trip.
  Nanoseconds HereAt(Nanoseconds there) const { return there - ahead_; }

 private:
  int trips_ = 0;
  Nanoseconds quickest_ = 0;
  Nanoseconds ahead_ = 0;
};

}  // namespace braid
