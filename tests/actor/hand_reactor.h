// A reactor that does nothing by itself: its thread is the test's, its clock stands until it is
// set, and wakes are counted.
#pragma once

#include <functional>

#include "gtest/gtest.h"
#include "runtime/base/reactor.h"

namespace braid {

class HandReactor : public Reactor {
 public:
  Nanoseconds Now() const override { return now; }
  void Wake() override { ++wakes; }
  bool InThread() const override { return true; }

  void Post(absl::AnyInvocable<void()>) override { Refuse(); }
  void SetPollable(Pollable*) override { Refuse(); }
  void RemovePollable(Pollable*) override { Refuse(); }
  TimerId RunAfter(Nanoseconds, absl::AnyInvocable<void()>) override { return Refuse(); }
  void CancelTimer(TimerId) override { Refuse(); }
  absl::Status Watch(int, Readiness, std::function<void(Readiness)>) override { return NotHere(); }
  absl::Status SetInterest(int, Readiness) override { return NotHere(); }
  void Unwatch(int) override { Refuse(); }

  Nanoseconds now = 0;
  int wakes = 0;

 private:
  static TimerId Refuse() {
    ADD_FAILURE() << "only the time, the thread and a wake were expected to be asked for";
    return 0;
  }
  static absl::Status NotHere() {
    return absl::UnimplementedError("no descriptor is watched here");
  }
};

}  // namespace braid
