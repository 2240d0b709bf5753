// Draws where the ops of a random job run and how their values lie over the devices. The job's twin
// on one device draws the same and uses none of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/job.h"
#include "runtime/base/philox.h"

namespace braid::conformance {

// A stream of decisions.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view what) : key_(MakeRandomKey(seed, what, 0)) {}
  int Below(int n) { return static_cast<int>(Uint32At(key_, next_++) % static_cast<uint32_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }
  double Uniform(double low, double high) {
    const uint64_t pair = (next_ + 1) / 2;  // of words that are not used yet
    next_ = 2 * pair + 2;
    return low + (high - low) * UniformDoubleAt(key_, pair);
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// Devices of each node: 2 to 4 devices.
std::vector<int> ClusterOf(uint64_t seed);

// None: the layouts that cost least. Most jobs have any that is legal.
std::optional<uint64_t> DrawLayoutSeed(uint64_t seed);

class RandomLayout {
 public:
  // `is_spread`: false for the twin.
  RandomLayout(uint64_t seed, Job& job, bool is_spread);

  // Runs fn, which records ops, perhaps on a placement of its own.
  template <typename Function>
  auto Somewhere(Function fn) {
    const int at =
        draws_.Chance(place_percent_) ? draws_.Below(static_cast<int>(places_.size())) : kNowhere;
    const int before = std::exchange(here_, at);
    auto result = at != kNowhere && is_spread_ ? job_.On(places_[at], fn) : fn();
    here_ = before;
    return result;
  }

  // x, perhaps laid out in another way from here on.
  Tensor Perhaps(Tensor x);
  // For a variable made here.
  std::optional<NdSbp> VariableHint(const Shape& shape);

 private:
  static constexpr int kNowhere = -1;

  int RankHere() const;
  NdSbp Draw(const Shape& shape, bool may_be_partial);

  Draws draws_;
  Job& job_;
  const bool is_spread_;
  std::vector<Placement> places_;
  int place_percent_ = 0, hint_percent_ = 0;
  int rank_ = 1;  // of hints on ops that are placed nowhere
  int here_ = kNowhere;
};

}  // namespace braid::conformance
