// What is asked about an op of a graph: its definition, its place in a step, what the user asked of
// it.
#pragma once

#include <algorithm>
#include <vector>

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

// What it makes depends on its inputs and attributes alone.
inline bool IsFunction(const OpDef& def) {
  return def.role() == OpRole::kNone && !def.external() && !def.random() && def.mutates().empty();
}

// Of a variable: not an optimizer's state, or said not to be trained.
inline bool IsTrainable(const LogicalGraph& graph, const Op& op) {
  return IsVariable(graph, op) && (!op.attrs.Has("trainable") || op.attrs.Bool("trainable"));
}
// Whether the request trains it, if its loss depends on it.
inline bool IsTrained(const LogicalGraph& graph, const MinimizeRequest& request, const Op& op) {
  if (!IsVariable(graph, op) || !IsFloating(graph.type(op.outputs[0]).dtype)) return false;
  const VariableGroup* const group = request.GroupOf(op.name);
  if (group != nullptr && group->is_frozen) return false;
  if (request.variables.empty()) return IsTrainable(graph, op);
  return std::find(request.variables.begin(), request.variables.end(), op.id) !=
         request.variables.end();
}
// Its output is mirrored, and its input is not.
inline bool LeadsIntoMirrored(const LogicalGraph& graph, const Op& op) {
  const auto& mirrors = DefOf(graph, op).mirrors();
  return mirrors.has_value() && mirrors->outputs[0].is_mirrored();
}

// Of an op of an asynchronous server, which acts for each worker by itself: how many steps workers
// may be apart. Else 0.
inline int MaxStaleness(const Op& op) {
  return op.attrs.Has("max_staleness") ? static_cast<int>(op.attrs.Int("max_staleness")) : 0;
}
// Which input of such an op workers push: the first that it does not overwrite.
inline int PushedInput(const LogicalGraph& graph, const Op& op) {
  const std::vector<int>& mutated = DefOf(graph, op).mutates();
  int input = 0;
  while (std::find(mutated.begin(), mutated.end(), input) != mutated.end()) ++input;
  return input;
}

// By op: whether `tensor` depends on it. Ops stand behind those that they read.
inline std::vector<bool> AncestorsOf(const LogicalGraph& graph, TensorId tensor) {
  std::vector<bool> is_ancestor(graph.ops().size(), false);
  is_ancestor[graph.tensor(tensor).producer] = true;
  for (OpId id = graph.tensor(tensor).producer; id >= 0; --id) {
    if (!is_ancestor[id]) continue;
    for (TensorId input : graph.op(id).inputs) is_ancestor[graph.tensor(input).producer] = true;
  }
  return is_ancestor;
}

}  // namespace braid
