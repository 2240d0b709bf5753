// What is asked about an op of a graph: its definition, its place in a step, what the user asked of
// it.
#pragma once

#include <algorithm>

#include "graph/logical_graph.h"
#include "graph/op_registry.h"

namespace braid {

// Whether the user asked for the layout of an output.
inline bool HasHint(const Op& op) {
  return std::any_of(op.hints.begin(), op.hints.end(),
                     [](const auto& hint) { return hint.has_value(); });
}

inline const OpDef& DefOf(const LogicalGraph& graph, const Op& op) {
  return *graph.registry().Find(op.type);  // Append and Parse accept known operators only
}

inline bool HasRole(const LogicalGraph& graph, const Op& op, OpRole role) {
  return DefOf(graph, op).role() == role;
}
inline bool IsVariable(const LogicalGraph& graph, const Op& op) {
  return HasRole(graph, op, OpRole::kVariable);
}
// Writes variables; input mutates()[0] leads, the others (optimizer states) follow its layout.
inline bool IsUpdate(const LogicalGraph& graph, const Op& op) {
  return !DefOf(graph, op).mutates().empty();
}

}  // namespace braid
