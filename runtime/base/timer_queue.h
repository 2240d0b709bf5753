// Timers in the order in which they are due, cancelled in place: what the real and the simulated
// reactor share. Belongs to one thread. The memory of timers that are over serves later ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/reactor.h"

namespace braid {

template <typename T>
class TimerQueue {
 public:
  // Timers with the same deadline are due in the order of `tie`, then of `id`.
  void Add(TimerId id, Nanoseconds deadline, uint64_t tie, T what) {
    const Key key{deadline, tie, id};
    if (spare_.empty()) {
      timers_.emplace(key, std::move(what));
      keys_.emplace(id, key);
      // Room for every timer that there is, so that ending one takes no memory either.
      spare_.reserve(timers_.size());
      return;
    }
    Spare spare = std::move(spare_.back());
    spare_.pop_back();
    spare.timer.key() = key;
    spare.timer.mapped() = std::move(what);
    timers_.insert(std::move(spare.timer));
    spare.key.key() = id;
    spare.key.mapped() = key;
    keys_.insert(std::move(spare.key));
  }

  // Does nothing for a timer that has run or never was.
  void Cancel(TimerId id) {
    const auto it = keys_.find(id);
    if (it == keys_.end()) return;
    Remove(timers_.find(it->second));
  }

  bool empty() const { return timers_.empty(); }
  size_t size() const { return timers_.size(); }
  // Both need a timer.
  Nanoseconds earliest() const { return std::get<0>(timers_.begin()->first); }
  T TakeEarliest() {
    const auto it = timers_.begin();
    T what = std::move(it->second);
    Remove(it);
    return what;
  }

  template <typename Claim>
  void CancelIf(const Claim& claim) {
    for (auto it = timers_.begin(); it != timers_.end();) {
      const auto timer = it++;
      if (claim(timer->second)) Remove(timer);
    }
  }

 private:
  using Key = std::tuple<Nanoseconds, uint64_t, TimerId>;  // deadline, tie, id
  using Timers = std::map<Key, T>;
  using Keys = std::unordered_map<TimerId, Key>;
  struct Spare {
    typename Timers::node_type timer;
    typename Keys::node_type key;
  };

  void Remove(typename Timers::iterator it) {
    const TimerId id = std::get<2>(it->first);
    const T what = std::move(it->second);  // goes last, since it may end other timers
    spare_.push_back({timers_.extract(it), keys_.extract(id)});
  }

  Timers timers_;
  Keys keys_;
  std::vector<Spare> spare_;
};

}  // namespace braid
