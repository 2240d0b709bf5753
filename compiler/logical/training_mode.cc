#include "compiler/logical/training_mode.h"

#include <numeric>
#include <vector>

#include "graph/op_roles.h"

namespace braid::compiler {

LogicalGraph SettleTraining(LogicalGraph graph) {
  const bool is_training = graph.training;
  // What is read in the place of each tensor; ops are in topological order.
  std::vector<TensorId> chosen(graph.tensors().size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::vector<bool> keep(graph.ops().size(), true);
  bool has_choice = false;
  for (Op& op : graph.mutable_ops()) {
    for (TensorId& input : op.inputs) input = chosen[input];
    if (HasRole(graph, op, OpRole::kDropout) && !is_training) {
      op.type = "identity";
      op.attrs = {};
    } else if (HasRole(graph, op, OpRole::kIfTraining)) {
      chosen[op.outputs[0]] = op.inputs[is_training ? 0 : 1];
      keep[op.id] = false;
      has_choice = true;
    } else if (op.outputs.empty() && IsUpdate(graph, op) && op.inputs.size() == 2 &&
               op.inputs[0] == op.inputs[1]) {
      keep[op.id] = false;
    }
  }
  if (!has_choice) return graph;
  for (MinimizeRequest& request : graph.minimize()) {
    request.loss = chosen[request.loss];
    if (request.learning_rate != kNone) request.learning_rate = chosen[request.learning_rate];
  }
  graph.Prune(keep);
  return graph;
}

}  // namespace braid::compiler
