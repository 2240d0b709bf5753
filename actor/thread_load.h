// How an ActorThread spends its time, and whose messages it waits for: when one ends its idleness,
// the sender gets the blame. Counted over the last 10 to 20 s, on the thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "actor/message.h"
#include "runtime/base/reactor.h"

namespace braid {

// Another thread of the cluster, as far as it is known.
struct ThreadId {
  static constexpr int kUnknown = -1;
  static constexpr int kHost = -2;  // as a node: the program, which has given no Run
  int node = kUnknown;
  int thread = kUnknown;

  friend auto operator<=>(const ThreadId&, const ThreadId&) = default;
};

struct ThreadLoadReport {
  Nanoseconds window = 0;                       // what the rest is counted over
  Nanoseconds idle = 0;                         // in all
  Nanoseconds idle_now = 0;                     // since the last act, if it waits now
  std::map<ThreadId, Nanoseconds> waited = {};  // of `idle`, by who ended it
};

class ThreadLoad {
 public:
  bool is_idle() const { return idle_since_ >= 0; }

  // There is nothing to do from now on.
  void BeginIdle(Nanoseconds now) {
    if (current_.began < 0) current_.began = now;
    idle_since_ = now;
  }
  // A message of `cause` gave something to do.
  void EndIdle(Nanoseconds now, const ThreadId& cause) {
    current_.idle += now - idle_since_;
    current_.TimeOf(cause) += now - idle_since_;
    idle_since_ = -1;
    if (now - current_.began < kWindow) return;
    std::swap(previous_, current_);
    previous_.ended = now;
    current_.began = now;
    current_.idle = 0;
    current_.waited.clear();
  }

  ThreadLoadReport Report(Nanoseconds now) const {
    ThreadLoadReport report;
    for (const Window* window : {&previous_, &current_}) {
      if (window->began < 0) continue;
      report.window += (window == &current_ ? now : window->ended) - window->began;
      report.idle += window->idle;
      for (const auto& [cause, time] : window->waited) report.waited[cause] += time;
    }
    if (is_idle()) {
      report.idle_now = now - idle_since_;
      report.idle += report.idle_now;
    }
    return report;
  }

 private:
  static constexpr Nanoseconds kWindow = 10 * kSecond;
  struct Window {
    Nanoseconds began = -1;
    Nanoseconds ended = 0;
    Nanoseconds idle = 0;
    // In the order in which they were first waited for. Keeps its memory; seldom is there more than
    // a few.
    std::vector<std::pair<ThreadId, Nanoseconds>> waited = {};

    Window() { waited.reserve(kMostCauses); }
    Nanoseconds& TimeOf(const ThreadId& cause) {
      for (auto& [known, time] : waited) {
        if (known == cause) return time;
      }
      return waited.emplace_back(cause, 0).second;
    }
  };
  static constexpr size_t kMostCauses = 32;  // for which there is room from the start

  Nanoseconds idle_since_ = -1;
  Window current_;
  Window previous_;
};

}  // namespace braid
