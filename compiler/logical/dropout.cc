#include "compiler/logical/dropout.h"

namespace braid::compiler {

LogicalGraph DisableDropout(LogicalGraph graph) {
  if (graph.training) return graph;
  for (Op& op : graph.mutable_ops()) {
    if (op.type != "dropout") continue;
    op.type = "identity";
    op.attrs = {};
  }
  return graph;
}

}  // namespace braid::compiler
