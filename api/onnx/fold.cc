#include "api/onnx/fold.h"

#include <utility>

#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

bool CanFold(const LogicalGraph& graph, int64_t max_bytes) {
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kInput)) continue;
    const OpDef& def = DefOf(graph, op);
    if (def.external() || def.random() || def.role() == OpRole::kStep || IsUpdate(graph, op)) {
      return false;
    }
  }
  for (const TensorInfo& tensor : graph.tensors()) {
    int64_t bytes = static_cast<int64_t>(SizeOf(tensor.type.dtype));
    for (int64_t dim : tensor.type.shape) {
      if (dim > 0 && bytes > max_bytes / dim) return false;
      bytes *= dim;
    }
    max_bytes -= bytes;
  }
  return max_bytes >= 0;
}

OperandSpec WholeOperand(const TensorType& type) {
  return {.dtype = type.dtype, .logical = type.shape, .region = Region::Whole(type.shape)};
}

}  // namespace

absl::StatusOr<std::optional<std::vector<Array>>> Fold(
    const LogicalGraph& graph, const std::map<TensorId, std::shared_ptr<const Array>>& fed,
    const std::vector<Tensor>& outputs, const KernelRegistry& kernels, FoldOptions options) {
  if (!CanFold(graph, options.max_bytes)) return std::nullopt;
  std::vector<Array> values(graph.tensors().size());
  for (const auto& [id, array] : fed) values[id] = *array;
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kInput)) continue;
    KernelSpec spec = {.op = op.type, .name = op.name, .attrs = op.attrs};
    std::vector<void*> from, to;
    for (TensorId input : op.inputs) {
      spec.inputs.push_back(WholeOperand(graph.type(input)));
      from.push_back(values[input].mutable_bytes());
    }
    for (TensorId output : op.outputs) {
      const TensorType& type = graph.type(output);
      spec.outputs.push_back(WholeOperand(type));
      values[output] = Array(type.dtype, type.shape);
      to.push_back(values[output].mutable_bytes());
    }
    BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, kernels.Create(spec));
    BRAID_RETURN_IF_ERROR(kernel->Run({.inputs = from.data(), .outputs = to.data()}));
  }
  std::vector<Array> results;
  for (const Tensor& output : outputs) {
    results.push_back(output.valid() ? values[output.id()] : Array());
  }
  return results;
}

}  // namespace braid::onnx
