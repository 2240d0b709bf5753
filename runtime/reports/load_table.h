// Which node the others wait for: from how the threads spent their time, the share of each node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/reports/wait_graph.h"

namespace braid {

struct NodeLoad {
  uint16_t node = 0;
  // Shares of time: the other nodes' compute threads waited for it in the end; its own compute
  // threads waited; its busiest thread worked.
  double waited_for = 0;
  double waiting = 0;
  double busy = 0;
  std::string slowest;           // act by mean time: "relu 'h' (train.cc:12)"; "": all are short
  Nanoseconds slowest_time = 0;  // its mean
};

// The nodes that answered, those first that are waited for most; at most `limit`.
std::vector<NodeLoad> MeasureLoads(const ClusterState& cluster, size_t limit);

}  // namespace braid
