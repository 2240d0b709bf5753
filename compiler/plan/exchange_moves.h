// What an exchange moves: boxes from rank to rank, seen from either end, and counted.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// One box that moves in an exchange, from a source rank to a destination rank.
struct Move {
  int source_rank = 0;
  int destination_rank = 0;
  Region region;          // logical coordinates, micro-batch 0
  bool add = false;       // it is added to what is there (the first move to a box is not)
  bool is_whole = false;  // it alone makes the destination's box
};

struct ExchangeTraffic {
  int64_t total_bytes = 0;    // between different devices
  int64_t busiest_bytes = 0;  // sent or received by the busiest device
  int messages = 0;           // sent or received by the busiest device
};

// Both sides ask the same object, so that they agree. Making one costs as much as there are ranks;
// a rank's moves cost as much as there are of them.
class ExchangeMoves {
 public:
  // Borrows both. `source` is the placement of the exchange's input.
  ExchangeMoves(const TaskGroup& exchange, const Placement& source);
  ~ExchangeMoves();

  // What `destination_rank` receives, in the order in which it is summed: deterministic, and
  // balanced (a box that several sources hold is read from the same device, else the same node,
  // else spread). Boxes of the destination that no move covers are zeros.
  std::vector<Move> To(int destination_rank) const;
  // What `source_rank` sends: the same moves seen from the other side, by destination.
  std::vector<Move> From(int source_rank) const;
  // Exact up to 2^14 pairs of ranks. Beyond, total_bytes is exact, and what the busiest device
  // sends is taken as the mean over the source.
  ExchangeTraffic Traffic() const;

 private:
  class Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace braid::compiler
