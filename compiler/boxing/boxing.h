// Boxing: how a tensor gets from one (placement, layout) to another. There is one boxing, used by
// every view. A rule is one file and one line in rules.cc; the cheapest chain of rules wins.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/machine.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

struct BoxingEdge {
  TensorType type;  // logical; bytes are those of one act, so of one micro-batch
  Sbp micro_batch_sbp = sbp::B;
  int micro_batches = 1;
  Placement source, destination;
  NdSbp source_sbp, destination_sbp;
};

struct BoxingCost {
  // Moved between devices, by the algorithms with the fewest bytes: an all_reduce of little data
  // may take more, in fewer messages.
  int64_t total_bytes = 0;    // all devices together (the table of sbp.md)
  int64_t busiest_bytes = 0;  // sent or received by the busiest device
  // Of the busiest device, one after another, by the algorithm that carries it out.
  int64_t messages = 0;
  int64_t least_messages = 0;            // by the algorithm with the fewest
  LinkClass link = LinkClass::kProcess;  // the farthest that it takes

  double Seconds(const Machine& machine) const {
    return machine.TransferSeconds(link, static_cast<double>(messages),
                                   static_cast<double>(busiest_bytes));
  }
  friend bool operator==(const BoxingCost&, const BoxingCost&) = default;
};

// One step of a route.
struct BoxingStep {
  std::string_view rule;
  BoxingEdge edge;
  BoxingCost cost;
  // What the route is chosen by: its time on the planner's machine, in units of 0.1 ns.
  int64_t ticks = 0;
};

struct BoxingRule {
  std::string_view name;
  bool (*matches)(const BoxingEdge& edge);
  // matches(edge) only. What it moves, and over which links of the machine's.
  BoxingCost (*cost)(const BoxingEdge& edge, const Machine& machine);
  struct Source {
    GroupRegisterId reg;
    int part;
    int acts_per_step;
    std::string_view name;  // of the tensor
    SourceLocation location;
  };
  // Appends groups that turn part `source.part` of register `source.reg` into the destination
  // layout, and returns the register (with one part) that holds it; `source.reg` itself if the
  // bytes are right as they stand.
  GroupRegisterId (*build)(const BoxingEdge& edge, const Source& source, PhysicalGraph& graph);
};

// The list, in order of preference among equal costs. slice_exchange is last and matches all.
std::span<const BoxingRule> BoxingRules();

// Finds the cheapest route: the shortest path over intermediate layouts on both placements, by the
// rules' costs on a machine. Deterministic. Answers are kept, so that it can be asked for every
// candidate of every op.
class BoxingPlanner {
 public:
  explicit BoxingPlanner(Machine machine = {}) : machine_(std::move(machine)) {}

  const Machine& machine() const { return machine_; }
  // Empty if the source's bytes are the destination's as they stand. The reference is good as long
  // as the planner. Neither layout may mix P, P(max) and P(min).
  const std::vector<BoxingStep>& Route(const BoxingEdge& edge);

 private:
  int PlacementId(const Placement& placement);

  const Machine machine_;
  std::vector<Placement> placements_;  // a key names a placement by its index
  std::map<std::string, std::vector<BoxingStep>> routes_;
};

// Appends the route's groups; returns the register and part that hold the destination layout.
std::pair<GroupRegisterId, int> BuildRoute(std::span<const BoxingStep> route,
                                           const BoxingRule::Source& source, PhysicalGraph& graph);

}  // namespace braid::compiler
