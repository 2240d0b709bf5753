// The pass that gives every op a Placement. It stands after autograd and the optimizer pass, before
// micro_batch and infer_sbp.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "graph/logical_graph.h"
#include "graph/placement.h"
#include "graph/sbp.h"

namespace braid::compiler {

// Where a variable lives and how it is split: what the job that trains it fixes for later jobs.
struct VariableLayout {
  Placement placement;
  NdSbp sbp;
};
using VariableLayouts = std::map<std::string, VariableLayout>;  // by the variable op's name

// What stays and what follows what:
// - an op placed by the user stays; `input` and `fetch` sit on `master`, where the host is;
// - a variable that `fixed` names sits where it says;
// - an op of a gradient sits where its forward op does;
// - another op sits where its first input does whose place the user gave, directly or through the
//   ops between (variables aside: a parameter server holds them, it does not compute), else on
//   `all_devices`;
// - an op without inputs (reader, variable, constant, random) sits at its first consumer;
// - an update and its states sit at the variable.
// A flat placement becomes [nodes, devices per node] for all its ops if a hint there has two
// dimensions. Without one it takes the hierarchy that a fixed variable on the same devices has,
// unless another fixed variable lies flat there.
// INVALID_ARGUMENT naming op, line and counts if a hint does not fit its placement's hierarchy.
absl::StatusOr<LogicalGraph> InferPlacement(LogicalGraph graph, const Placement& all_devices,
                                            const Placement& master,
                                            const VariableLayouts& fixed = {});

}  // namespace braid::compiler
