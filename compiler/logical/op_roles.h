// The few operators whose place in a step, not whose arithmetic, the passes must know: the one
// place that knows them by name.
#pragma once

#include <algorithm>

#include "graph/logical_graph.h"
#include "graph/op_registry.h"

namespace braid::compiler {

inline bool IsVariable(const Op& op) { return op.type == "variable"; }
// A value that the host feeds; it enters the cluster at the master.
inline bool IsInput(const Op& op) { return op.type == "input"; }
// A value that goes to the host, at the master.
inline bool IsFetch(const Op& op) { return op.type == "fetch"; }
// One batch of records a step.
inline bool IsReader(const Op& op) { return op.type == "read"; }
// Stands for a gradient until there is one.
inline bool IsGradientRequest(const Op& op) { return op.type == "gradient_of"; }
// Its first input, but not before the second is there.
inline bool IsAfter(const Op& op) { return op.type == "after"; }
// Drops elements in training; else it makes what `identity` makes.
inline bool IsDropout(const Op& op) { return op.type == "dropout"; }

// Whether the user asked for the layout of an output.
inline bool HasHint(const Op& op) {
  return std::any_of(op.hints.begin(), op.hints.end(),
                     [](const auto& hint) { return hint.has_value(); });
}

inline const OpDef& DefOf(const LogicalGraph& graph, const Op& op) {
  return *graph.registry().Find(op.type);  // Append and Parse accept known operators only
}
// Writes variables; input mutates()[0] leads, the others (optimizer states) follow its layout.
inline bool IsUpdate(const LogicalGraph& graph, const Op& op) {
  return !DefOf(graph, op).mutates().empty();
}

}  // namespace braid::compiler
