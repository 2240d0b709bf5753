// How long a thread looks for what it waits for before it sleeps, by what that paid lately.
#pragma once

#include <algorithm>

#include "runtime/base/reactor.h"

namespace braid {

// One thread's at a time.
class SpinBudget {
 public:
  explicit SpinBudget(Nanoseconds longest) : spin_(longest) {}

  // False while another program wants the processor: who looks then only loses its turn.
  bool MayLook(Nanoseconds now) const { return now >= looks_from_; }
  Nanoseconds spin() const { return spin_; }

  // What was waited for came soon.
  void Pay(Nanoseconds longest) { spin_ = longest; }
  // It did not come. What took long to come last time is not looked for at length.
  void Fail(bool is_alone) {
    spin_ = is_alone ? std::max(spin_ / 2, kShortestSpin) : kShortestSpin;
  }

  // Notes that the thread wanted to run from `wanted` on and did at `got`; false if it waited long
  // for a processor. The clock says so, and not a yield: who yields to a program that computes
  // waits until that one's time is over, again and again.
  bool NoteTurn(Nanoseconds wanted, Nanoseconds got) {
    if (got - wanted < kLongestGap) return true;
    looks_from_ = got + kRespite * std::min(got - wanted, kSecond / kRespite);
    return false;
  }

 private:
  static constexpr Nanoseconds kShortestSpin = 1 * kMicrosecond;
  // Longer than interrupts and wake-ups take; shorter than the time that a program is given.
  static constexpr Nanoseconds kLongestGap = 200 * kMicrosecond;
  // For so many times what it waited for a processor a thread does not look, but for a second at
  // most: it may have been stopped.
  static constexpr int kRespite = 30;

  Nanoseconds spin_;
  Nanoseconds looks_from_ = 0;
};

}  // namespace braid
