// The Runs that a thread was given and that some of its actors have not done yet. An actor may be
// Runs ahead of another; a Run is done when the last one has done it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace braid {

// Where an actor is among the Runs.
struct RunPlace {
  int64_t end =
      INT64_MAX;    // its acts at the end of the Run that it is in; INT64_MAX: it is in none
  int64_t run = 0;  // that Run's number
};

class RunList {
 public:
  // A Run of `steps` for `actors`.
  void Add(int64_t steps, size_t actors) {
    steps_ += steps;
    runs_.push_back({.steps = steps_, .actors_left = actors});
  }
  // For each of these actors after Add: the new Run is the one it is in, unless it is in another.
  void Enter(RunPlace& place, int64_t acts_per_step) const {
    if (place.end != INT64_MAX) return;
    place.run = first_ + static_cast<int64_t>(runs_.size()) - 1;
    place.end = steps_ * acts_per_step;
  }
  // An actor came to the end of its Run: it is in the next one now, if there is one.
  void Leave(RunPlace& place, int64_t acts_per_step) {
    --runs_[place.run - first_].actors_left;
    const size_t next = ++place.run - first_;
    place.end = next < runs_.size() ? runs_[next].steps * acts_per_step : INT64_MAX;
  }
  // Takes the oldest Run off if it is done: the steps from the session's start to its end.
  std::optional<int64_t> TakeDone() {
    if (runs_.empty() || runs_.front().actors_left != 0) return std::nullopt;
    const int64_t steps = runs_.front().steps;
    runs_.pop_front();
    ++first_;
    return steps;
  }

  // Of all Runs since the session's start.
  int64_t steps() const { return steps_; }

 private:
  struct Run {
    int64_t steps = 0;       // from the session's start to its end
    size_t actors_left = 0;  // that have not reached its end
  };

  std::deque<Run> runs_;
  int64_t first_ = 0;  // the number of runs_.front()
  int64_t steps_ = 0;
};

}  // namespace braid
