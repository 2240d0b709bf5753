// How far workers of an asynchronous server are apart, for kernels of every kind of device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace braid {

class StalenessCounter {
 public:
  explicit StalenessCounter(int64_t workers) : counts_(workers, 0) {}

  // Counts the act for its worker. Returns how many steps a worker was ahead of the slowest, the
  // most of all acts of the round so far; 0 where nothing goes by workers.
  int64_t Count(const KernelRun& run) {
    if (run.micro_batch == 0) most_ = 0;
    if (run.lane == kNoLane || run.lane >= static_cast<int64_t>(counts_.size())) return most_;
    const int64_t done = counts_[run.lane]++;
    return most_ = std::max(most_, done - *std::min_element(counts_.begin(), counts_.end()));
  }

 private:
  std::vector<int64_t> counts_;
  int64_t most_ = 0;
};

}  // namespace braid
