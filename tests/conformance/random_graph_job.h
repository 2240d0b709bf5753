// A random job: any seed gives a program over all families of operators that trains some variables.
// What it computes depends on the seed alone; `is_spread` says whether it is laid out over a
// cluster (random_graph_layout.h) or runs where it is put.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/job.h"
#include "runtime/array.h"

namespace braid::conformance {

struct RandomJob {
  uint64_t seed = 0;
  bool is_spread = false;
  int micro_batches = 1;
};

// More than 1 for some seeds: then all values keep their batches apart.
int MicroBatchesOf(uint64_t seed);
void RecordRandomJob(Job& job, const RandomJob& options);
std::vector<std::pair<std::string, Array>> FeedsOf(uint64_t seed);

}  // namespace braid::conformance
