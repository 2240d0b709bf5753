// The actors of a thread that can fire, in the order in which they became able to; the deferrable
// ones come after all others.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace braid {

class Actor;

// Each actor stands in it at most once: that is what Reserve counts on.
class FireList {
 public:
  // Room for so many actors. Before the first Push.
  void Reserve(size_t actors) {
    size_t capacity = 1;
    while (capacity < actors) capacity *= 2;
    for (Ring* ring : {&urgent_, &deferrable_}) {
      ring->actors.assign(capacity, nullptr);
      ring->mask = capacity - 1;
    }
  }

  bool empty() const { return urgent_.empty() && deferrable_.empty(); }
  size_t size() const { return urgent_.size() + deferrable_.size(); }

  void Push(Actor* actor, bool is_deferrable) {
    (is_deferrable ? deferrable_ : urgent_).Push(actor);
  }
  // Of a list that is not empty.
  Actor* Pop() { return (urgent_.empty() ? deferrable_ : urgent_).Pop(); }
  // The one that `nth` others precede; the first takes its place. For simulation.
  Actor* Pop(size_t nth) {
    const size_t urgent = urgent_.size();
    return nth < urgent ? urgent_.Pop(nth) : deferrable_.Pop(nth - urgent);
  }
  void Clear() {
    urgent_.first = urgent_.end;
    deferrable_.first = deferrable_.end;
  }

 private:
  struct Ring {
    bool empty() const { return first == end; }
    size_t size() const { return end - first; }
    void Push(Actor* actor) { actors[end++ & mask] = actor; }
    Actor* Pop() { return actors[first++ & mask]; }
    Actor* Pop(size_t nth) {
      std::swap(actors[first & mask], actors[(first + nth) & mask]);
      return Pop();
    }

    std::vector<Actor*> actors{nullptr};
    size_t mask = 0;
    size_t first = 0;
    size_t end = 0;
  };
  Ring urgent_, deferrable_;
};

}  // namespace braid
