// Lowered jobs for the tests of the passes on PhysicalGraphs, and what these tests read off a
// graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/plan/physical_graph.h"
#include "graph/op_registry.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {

const OpRegistry& JobRegistry();

// nodes x per_node cpu devices, flat.
Placement CpuDevices(int nodes, int per_node);

// Lower and AssignStreams on a graph that has its layouts, for nodes with devices of these kinds.
absl::StatusOr<PhysicalGraph> LowerText(const std::string& text, NodeKinds kinds = {});
// All logical passes, then the same; feeds and fetches on device 0.0.
absl::StatusOr<PhysicalGraph> LowerMlp(const MlpText& mlp, const Placement& all_devices);

// "g2 compute 'chain fc1..loss (23 ops)' acts_per_step=1 <- g0 g1" a line a group: edges with
// initial tokens are left out, "x/4" is a period.
std::string SummaryOf(const PhysicalGraph& graph);

// A graph of one-kernel groups with random edges, placements, acts, communication, control edges
// and variables; acyclic.
PhysicalGraph RandomPhysicalGraph(uint64_t seed);

// What a pass that only regroups must keep. Both graphs are run by symbols: "" if every kernel runs
// exactly once on the same operands, and for every control edge of `before` without tokens, and
// every variable, `after` keeps the order; else what differs.
std::string CompareRuns(const PhysicalGraph& before, const PhysicalGraph& after);

}  // namespace braid::compiler
