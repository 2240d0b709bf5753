// Timers in the order in which they are due, cancelled in place: what the real and the simulated
// reactor share. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/base/reactor.h"

namespace braid {

template <typename T>
class TimerQueue {
 public:
  // Timers with the same deadline are due in the order of `tie`, then of `id`.
  void Add(TimerId id, Nanoseconds deadline, uint64_t tie, T what) {
    const Key key{deadline, tie, id};
    timers_.emplace(key, std::move(what));
    keys_.emplace(id, key);
  }

  // Does nothing for a timer that has run or never was.
  void Cancel(TimerId id) {
    const auto it = keys_.find(id);
    if (it == keys_.end()) return;
    timers_.erase(it->second);
    keys_.erase(it);
  }

  bool empty() const { return timers_.empty(); }
  size_t size() const { return timers_.size(); }
  // Both need a timer.
  Nanoseconds earliest() const { return std::get<0>(timers_.begin()->first); }
  T TakeEarliest() {
    const auto it = timers_.begin();
    T what = std::move(it->second);
    keys_.erase(std::get<2>(it->first));
    timers_.erase(it);
    return what;
  }

  template <typename Claim>
  void CancelIf(const Claim& claim) {
    for (auto it = timers_.begin(); it != timers_.end();) {
      if (claim(it->second)) {
        keys_.erase(std::get<2>(it->first));
        it = timers_.erase(it);
      } else {
        ++it;
      }
    }
  }

 private:
  using Key = std::tuple<Nanoseconds, uint64_t, TimerId>;  // deadline, tie, id
  std::map<Key, T> timers_;
  std::unordered_map<TimerId, Key> keys_;
};

}  // namespace braid
