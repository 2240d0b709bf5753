// How a step with micro-batches falls into phases: what comes before all of them have come so far,
// what waits for that (an update for the sum of all gradients), and what their acts go on to from
// there, as where they wait for a mean of the batch or for the divisor of a mean over the labels
// that count.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

struct ActPhases {
  // By group: how often, on the way to it, something waits until all micro-batches have come so
  // far. Along an edge within a step a phase never falls, and it rises where all acts are waited
  // for. A group stands as late as its readers allow: what the divisor is made of goes ahead of
  // what it is for, and does not wait for the loss. 0 everywhere if groups act once a step.
  std::vector<int> of;
  // The last phase in which groups act for every micro-batch: 0 unless acts wait for a value that
  // all acts of others had a part in.
  int last = 0;
};

// INTERNAL naming a cycle if the graph has one.
absl::StatusOr<ActPhases> FindActPhases(const PhysicalGraph& graph);

}  // namespace braid::compiler
