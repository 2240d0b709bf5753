// What an exchange moves between devices, counted; the moves themselves are MovesTo and MovesFrom.
#pragma once

#include <cstdint>

#include "compiler/physical_graph.h"

namespace braid::compiler {

struct ExchangeTraffic {
  int64_t total_bytes = 0;    // between different devices
  int64_t busiest_bytes = 0;  // sent or received by the busiest device
  int messages = 0;           // sent or received by the busiest device
};

// Exact up to 2^14 pairs of ranks. Beyond, total_bytes is exact, and what the busiest device sends
// is taken as the mean over the source.
ExchangeTraffic TrafficOf(const TaskGroup& exchange, const Placement& source);

}  // namespace braid::compiler
