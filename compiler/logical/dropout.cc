#include "compiler/logical/dropout.h"

#include "graph/op_roles.h"

namespace braid::compiler {

LogicalGraph DisableDropout(LogicalGraph graph) {
  if (graph.training) return graph;
  for (Op& op : graph.mutable_ops()) {
    if (!HasRole(graph, op, OpRole::kDropout)) continue;
    op.type = "identity";
    op.attrs = {};
  }
  return graph;
}

}  // namespace braid::compiler
