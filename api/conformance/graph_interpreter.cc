#include "api/conformance/graph_interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

OperandSpec WholeOperand(const TensorType& type) {
  return {.dtype = type.dtype, .logical = type.shape, .region = Region::Whole(type.shape)};
}

// The op that makes a variable's first value: random numbers have the variable's name as key.
absl::StatusOr<Array> InitialValue(const Op& variable, const TensorType& type,
                                   const KernelRegistry& kernels, uint64_t seed) {
  const std::string init =
      variable.attrs.Has("init") ? variable.attrs.String("init") : std::string("zeros");
  KernelSpec spec = {.name = variable.name, .attrs = variable.attrs, .seed = seed};
  spec.outputs = {WholeOperand(type)};
  if (init == "uniform" || init == "normal") {
    spec.op = "random_" + init;
  } else {
    spec.op = "constant";
    if (init != "constant") spec.attrs.Set("value", init == "ones" ? 1.0 : 0.0);
  }
  BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, kernels.Create(spec));
  Array value(type.dtype, type.shape);
  void* output = value.mutable_bytes();
  BRAID_RETURN_IF_ERROR(kernel->Run({.outputs = &output}));
  return value;
}

}  // namespace

absl::StatusOr<GraphInterpreter> GraphInterpreter::Make(const LogicalGraph& graph,
                                                        const KernelRegistry& kernels,
                                                        uint64_t seed) {
  BRAID_RETURN_IF_ERROR(graph.status());
  GraphInterpreter interpreter(graph);
  interpreter.graph_.SortTopologically();
  BRAID_RETURN_IF_ERROR(interpreter.MakeKernels(kernels, seed));
  return interpreter;
}

absl::Status GraphInterpreter::MakeKernels(const KernelRegistry& kernels, uint64_t seed) {
  for (const TensorInfo& tensor : graph_.tensors()) {
    values_.emplace_back(tensor.type.dtype, tensor.type.shape);
  }
  for (const Op& op : graph_.ops()) {
    if (HasRole(graph_, op, OpRole::kInput) || HasRole(graph_, op, OpRole::kFetch)) continue;
    if (IsVariable(graph_, op)) {
      BRAID_ASSIGN_OR_RETURN(Array value,
                             InitialValue(op, graph_.type(op.outputs[0]), kernels, seed));
      variables_.insert_or_assign(op.name, std::move(value));
      continue;
    }
    KernelSpec spec = {.op = op.type, .name = op.name, .attrs = op.attrs, .seed = seed};
    for (TensorId input : op.inputs) spec.inputs.push_back(WholeOperand(graph_.type(input)));
    for (TensorId output : op.outputs) spec.outputs.push_back(WholeOperand(graph_.type(output)));
    BRAID_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, kernels.Create(spec));
    steps_.push_back({op.id, graph_.registry().Find(op.type)->mutates(), std::move(kernel)});
  }
  std::stable_partition(steps_.begin(), steps_.end(),
                        [](const Step& step) { return step.mutates.empty(); });
  return absl::OkStatus();
}

void GraphInterpreter::Set(std::string_view name, Array value) {
  const std::optional<OpId> id = graph_.FindOp(name);
  CHECK(id.has_value()) << "no op '" << name << "'";
  const Op& op = graph_.op(*id);
  const bool is_input = HasRole(graph_, op, OpRole::kInput);
  CHECK(is_input || IsVariable(graph_, op)) << name << " is a " << op.type;
  const TensorType& type = graph_.type(op.outputs[0]);
  CHECK(type == (TensorType{value.dtype(), value.shape()})) << name << " is " << type.ToString();
  (is_input ? inputs_ : variables_).insert_or_assign(op.name, std::move(value));
}

absl::Status GraphInterpreter::Run(int64_t step) {
  for (const Op& op : graph_.ops()) {
    if (IsVariable(graph_, op)) values_[op.outputs[0]] = variables_.at(op.name);
    if (!HasRole(graph_, op, OpRole::kInput)) continue;
    const auto fed = inputs_.find(op.name);
    if (fed == inputs_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", op.name, "' was not set"));
    }
    values_[op.outputs[0]] = fed->second;
  }
  for (const Step& each : steps_) BRAID_RETURN_IF_ERROR(RunStep(each, step));
  for (const Op& op : graph_.ops()) {
    if (HasRole(graph_, op, OpRole::kFetch)) {
      fetched_.insert_or_assign(op.attrs.String("name"), values_[op.inputs[0]]);
    }
  }
  return absl::OkStatus();
}

absl::Status GraphInterpreter::RunStep(const Step& step, int64_t number) {
  const Op& op = graph_.op(step.op);
  std::vector<void*> inputs, outputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_mutated =
        std::count(step.mutates.begin(), step.mutates.end(), static_cast<int>(i)) > 0;
    Array& array =
        is_mutated ? variables_.at(graph_.producer(op.inputs[i]).name) : values_[op.inputs[i]];
    inputs.push_back(array.mutable_bytes());
  }
  for (TensorId output : op.outputs) outputs.push_back(values_[output].mutable_bytes());
  return step.kernel->Run({.step = number, .inputs = inputs.data(), .outputs = outputs.data()});
}

}  // namespace braid
