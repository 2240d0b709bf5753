// The one order in which devices come to the collectives that they do among themselves, if each
// waits in its stream for the others: then all of them have to come to the same one next. The pass
// stands after all that makes or joins collectives; verification demands the order.
#pragma once

#include <compare>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

// Adds the control edges of CollectiveOrder.
absl::StatusOr<PhysicalGraph> OrderCollectives(PhysicalGraph graph);

// From one collective to the next, or, with a token, to one of the next micro-batch or step.
struct OrderEdge {
  GroupId from = kNone;
  GroupId to = kNone;
  int initial_tokens = 0;
  int pieces = 1;  // a step, of both's acts
  friend auto operator<=>(const OrderEdge&, const OrderEdge&) = default;
};

// The edges that leave the devices of each list one order of their collectives, over all acts of
// all steps: that of the data, in which those that act for every micro-batch take turns, a
// micro-batch's before the next one's, as far as nothing between them waits for all micro-batches.
// INTERNAL if two lists share some of their devices, which then have no common order, or if groups
// wait for each other.
absl::StatusOr<std::vector<OrderEdge>> CollectiveOrder(const PhysicalGraph& graph);

}  // namespace braid::compiler
