#include "compiler/logical/read_into.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_roles.h"

namespace braid::compiler {

LogicalGraph ReadIntoVariables(LogicalGraph graph,
                               const std::function<bool(const Placement&)>& may) {
  const auto consumers = graph.Consumers();
  std::vector<bool> keep(graph.ops().size(), true);
  for (Op& op : graph.mutable_ops()) {
    const bool is_conditional = op.inputs.size() > 2;
    if (!HasRole(graph, op, OpRole::kAssign) || is_conditional) continue;
    const Op& read = graph.producer(op.inputs[1]);
    const std::string& into = DefOf(graph, read).reads_into();
    if (into.empty() || consumers[op.inputs[1]].size() != 1) continue;
    if (read.placement != op.placement || !may(*op.placement)) continue;
    op.type = into;
    op.name = read.name;
    op.attrs = read.attrs;
    op.inputs.resize(1);
    keep[read.id] = false;
  }
  if (std::ranges::find(keep, false) != keep.end()) graph.Prune(keep);
  return graph;
}

}  // namespace braid::compiler
