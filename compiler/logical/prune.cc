#include "compiler/logical/prune.h"

#include <vector>

namespace braid::compiler {

LogicalGraph Prune(LogicalGraph graph) {
  std::vector<bool> keep(graph.ops().size(), false);
  std::vector<OpId> open;
  const auto need = [&](OpId id) {
    if (keep[id]) return;
    keep[id] = true;
    open.push_back(id);
  };
  for (const Op& op : graph.ops()) {
    if (op.outputs.empty()) need(op.id);
  }
  for (const MinimizeRequest& request : graph.minimize()) {
    need(graph.tensor(request.loss).producer);
    for (TensorId tensor : {request.learning_rate, request.loss_scale}) {
      if (tensor != kNone) need(graph.tensor(tensor).producer);
    }
  }
  while (!open.empty()) {
    const OpId id = open.back();
    open.pop_back();
    for (TensorId input : graph.op(id).inputs) need(graph.tensor(input).producer);
  }
  graph.Prune(keep);
  return graph;
}

}  // namespace braid::compiler
