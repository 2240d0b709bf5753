#include "compiler/logical/update_rows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

// Below this share of rows, sorting them and going to each costs less than going through all.
constexpr int64_t kLeastRowsPerIndex = 4;

// The inputs of the update's row form; none if it has none here.
std::vector<TensorId> InputsOfRows(const LogicalGraph& graph, const Op& update,
                                   const Op& gradient) {
  const TensorType& table = graph.type(update.inputs[0]);
  const bool adds_rows = DefOf(graph, gradient).adds_rows() && gradient.attrs.Int("axis") == 0;
  if (!adds_rows || SizeOf(table.dtype) < SizeOf(DType::kF32)) return {};
  const int64_t indices = graph.type(gradient.inputs[0]).shape.num_elements();
  if (indices * kLeastRowsPerIndex > table.shape[0]) return {};
  std::vector<TensorId> inputs = {update.inputs[0], gradient.inputs[0], gradient.inputs[1]};
  inputs.insert(inputs.end(), update.inputs.begin() + 2, update.inputs.end());
  return inputs;
}

}  // namespace

LogicalGraph UpdateRows(LogicalGraph graph) {
  const bool is_cut = std::ranges::any_of(
      graph.minimize(), [](const MinimizeRequest& request) { return request.micro_batches > 1; });
  if (is_cut) return graph;
  const auto consumers = graph.Consumers();
  std::vector<bool> keep(graph.ops().size(), true);
  for (Op& op : graph.mutable_ops()) {
    const OpDef& def = DefOf(graph, op);
    const std::string row_form =
        def.is_update() && MaxStaleness(op) == 0 ? def.row_form(op.attrs) : "";
    if (row_form.empty() || consumers[op.inputs[1]].size() != 1) continue;
    const Op& gradient = graph.producer(op.inputs[1]);
    std::vector<TensorId> inputs = InputsOfRows(graph, op, gradient);
    if (inputs.empty()) continue;
    op.type = row_form;
    op.inputs = std::move(inputs);
    keep[gradient.id] = false;
  }
  if (std::ranges::find(keep, false) != keep.end()) graph.Prune(keep);
  return graph;
}

}  // namespace braid::compiler
