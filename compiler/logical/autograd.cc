#include "compiler/logical/autograd.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"
#include "runtime/base/nearest_names.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

absl::Status Error(std::string_view message, const SourceLocation& where) {
  const std::string line = where.ToString();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(message), line.empty() ? "" : absl::StrCat(" (", line, ")")));
}

std::string Named(const Op& op) { return absl::StrCat(op.type, " '", op.name, "'"); }

// The backward sweep from one loss.
class Sweep {
 public:
  // Of the variables `reduced`, not what would come by their `mirror` operators.
  Sweep(LogicalGraph& graph, const MinimizeRequest& request, const std::set<TensorId>& targets,
        const std::map<TensorId, TensorId>& reduced)
      : graph_(graph),
        reduced_(reduced),
        loss_(request.loss),
        loss_scale_(request.loss_scale),
        where_(request.location),
        is_ancestor_(AncestorsOf(graph, request.loss)),
        needs_(graph.tensors().size(), false) {
    for (OpId id = 0; id <= graph.tensor(loss_).producer; ++id) {
      if (!is_ancestor_[id]) continue;
      const Op& op = graph.op(id);
      const bool has_needing_input = std::any_of(op.inputs.begin(), op.inputs.end(),
                                                 [this](TensorId input) { return needs_[input]; });
      for (TensorId output : op.outputs) {
        needs_[output] =
            targets.contains(output) || (has_needing_input && IsFloating(graph.type(output).dtype));
      }
    }
  }

  absl::Status Run() {
    const OpId last = graph_.tensor(loss_).producer;
    if (!needs_[loss_]) {
      return Error(absl::StrCat("the loss, ", Named(graph_.op(last)),
                                ", does not depend on any variable to train"),
                   where_);
    }
    const DType dtype = graph_.type(loss_).dtype;
    BRAID_RETURN_IF_ERROR(AppendFor(last, [&] {
      gradients_[loss_] = loss_scale_ == kNone ? Constant(graph_, 1, {.dtype = dtype})
                                               : Cast(Tensor(&graph_, loss_scale_), dtype);
      return absl::OkStatus();
    }));
    for (OpId id = last; id >= 0; --id) {
      if (is_ancestor_[id]) BRAID_RETURN_IF_ERROR(Visit(id));
    }
    return absl::OkStatus();
  }

  // kNone if none flows to it.
  TensorId GradientOf(TensorId tensor) const {
    const auto found = gradients_.find(tensor);
    return found == gradients_.end() ? kNone : found->second.id();
  }

 private:
  absl::Status Visit(OpId id) {
    const Op op = graph_.op(id);
    GradientContext context = {.graph = graph_, .op = op};
    bool has_gradient = false;
    for (TensorId output : op.outputs) {
      const auto found = gradients_.find(output);
      context.outputs.emplace_back(&graph_, output);
      context.output_gradients.push_back(found == gradients_.end() ? Tensor() : found->second);
      has_gradient = has_gradient || found != gradients_.end();
    }
    const bool has_needing_input = std::any_of(op.inputs.begin(), op.inputs.end(),
                                               [this](TensorId input) { return needs_[input]; });
    if (!has_gradient || !has_needing_input) return absl::OkStatus();
    if (LeadsIntoMirrored(graph_, op) && reduced_.contains(op.inputs[0])) return absl::OkStatus();
    for (TensorId input : op.inputs) context.inputs.emplace_back(&graph_, input);
    if (op.block != 0) {
      BRAID_RETURN_IF_ERROR(ComputeAgain(op.block, context.output_gradients));
      for (auto* tensors : {&context.inputs, &context.outputs}) {
        for (Tensor& tensor : *tensors) tensor = Again(op.block, tensor.id());
      }
    }

    const OpDef& def = *graph_.registry().Find(op.type);
    if (!def.has_gradient()) {
      return Error(absl::StrCat(Named(op),
                                " has no gradient, but lies between the loss and what "
                                "is to be trained; StopGradient before it would end the path"),
                   op.location);
    }
    return AppendFor(id, [&] { return Accumulate(op, def.BuildGradient(context)); });
  }

  // Appends the ops of a block once more, unless it was done. They wait for one of `gradients`, the
  // first that come to the block, so that nothing is computed again while the forward pass goes on.
  // What no gradient needs is pruned later.
  absl::Status ComputeAgain(int block, const std::vector<Tensor>& gradients) {
    if (again_.contains(block)) return absl::OkStatus();
    auto& again = again_[block];
    const Tensor gradient =
        *std::ranges::find_if(gradients, [](const Tensor& tensor) { return tensor.valid(); });
    const size_t forward_ops = is_ancestor_.size();
    for (size_t i = 0; i < forward_ops; ++i) {
      const Op op = graph_.op(static_cast<OpId>(i));
      if (!is_ancestor_[i] || op.block != block || !CanComputeAgain(op)) continue;
      BRAID_RETURN_IF_ERROR(AppendFor(op.id, [&] { return AppendAgain(op, gradient, again); }));
    }
    return absl::OkStatus();
  }

  // Sources are as good as their value, and random numbers are the op's own, unless it has a key.
  bool CanComputeAgain(const Op& op) const {
    const OpDef& def = *graph_.registry().Find(op.type);
    return !op.inputs.empty() && !op.outputs.empty() && !def.external() &&
           (!def.random() || op.attrs.Has("key"));
  }

  absl::Status AppendAgain(const Op& op, const Tensor& gradient,
                           std::map<TensorId, Tensor>& again) {
    std::vector<Tensor> inputs;
    for (TensorId input : op.inputs) {
      const auto known = again.find(input);
      if (known != again.end()) {
        inputs.push_back(known->second);
        continue;
      }
      Tensor tensor(&graph_, input);
      // What all devices share cannot wait for what each has for itself: it would be that, too.
      const bool can_wait = tensor.mirroring().has_value() || !gradient.mirroring().has_value();
      if (can_wait && !graph_.producer(input).inputs.empty()) {
        tensor = Apply("after", {tensor, gradient});
        again[input] = tensor;
      }
      inputs.push_back(tensor);
    }
    const std::vector<Tensor> outputs =
        graph_.Append(op.type, inputs, {.name = "again", .attrs = op.attrs, .hints = op.hints});
    BRAID_RETURN_IF_ERROR(graph_.status());
    graph_.mutable_op(graph_.tensor(outputs[0].id()).producer).is_again = true;
    for (size_t i = 0; i < outputs.size(); ++i) again[op.outputs[i]] = outputs[i];
    return absl::OkStatus();
  }

  Tensor Again(int block, TensorId tensor) {
    const std::map<TensorId, Tensor>& again = again_.at(block);
    const auto found = again.find(tensor);
    return found == again.end() ? Tensor(&graph_, tensor) : found->second;
  }

  absl::Status Accumulate(const Op& op, const std::vector<Tensor>& gradients) {
    BRAID_RETURN_IF_ERROR(graph_.status());
    for (size_t i = 0; i < gradients.size(); ++i) {
      const TensorId input = op.inputs[i];
      if (!needs_[input] || !gradients[i].valid()) continue;
      if (gradients[i].type() != graph_.type(input)) {
        return Error(absl::StrCat(Named(op), ": input ", i, " is ", graph_.type(input).ToString(),
                                  ", its gradient is ", gradients[i].type().ToString()),
                     op.location);
      }
      const auto [found, is_first] = gradients_.emplace(input, gradients[i]);
      if (!is_first) found->second = Add(found->second, gradients[i]);
    }
    return graph_.status();
  }

  // Runs `append`; what it appends belongs to the forward op.
  template <typename Append>
  absl::Status AppendFor(OpId forward, Append append) {
    const Op op = graph_.op(forward);
    const size_t first = graph_.ops().size();
    graph_.PushScope(absl::StrCat(op.name, ".grad"));
    graph_.PushPlacement(op.placement);
    graph_.set_current_forward(forward);
    const absl::Status status = append();
    graph_.set_current_forward(kNone);
    graph_.PopPlacement();
    graph_.PopScope();
    for (size_t id = first; id < graph_.ops().size(); ++id) {
      graph_.mutable_op(static_cast<OpId>(id)).location = op.location;
    }
    return status;
  }

  LogicalGraph& graph_;
  const std::map<TensorId, TensorId>& reduced_;
  TensorId loss_, loss_scale_;
  SourceLocation where_;
  std::vector<bool> is_ancestor_;  // by op: the loss depends on it
  std::vector<bool> needs_;        // by tensor: it depends on a target, through floating tensors
  std::map<TensorId, Tensor> gradients_;
  // By block: what stands for its tensors in the backward pass.
  std::map<int, std::map<TensorId, Tensor>> again_;
};

absl::Status CheckLoss(const LogicalGraph& graph, const MinimizeRequest& request) {
  const TensorType& type = graph.type(request.loss);
  if (const auto& mirroring = graph.tensor(request.loss).mirroring; mirroring.has_value()) {
    return Error(absl::StrCat("the loss, ", Named(graph.producer(request.loss)),
                              ", is mirrored: each device has its own (", mirroring->ToString(),
                              "); MeanMirrored(loss) is their mean, SumMirrored(loss) their sum"),
                 request.location);
  }
  if (IsFloating(type.dtype) && type.shape.rank() == 0) return absl::OkStatus();
  return Error(absl::StrCat("the loss, ", Named(graph.producer(request.loss)), ", is ",
                            type.ToString(), "; it must be a floating scalar, as Mean makes one"),
               request.location);
}

// Every group is some variable's.
absl::Status CheckGroups(const LogicalGraph& graph, const MinimizeRequest& request) {
  std::set<const VariableGroup*> used;
  std::vector<std::string> names;
  for (OpId id : request.variables) {
    names.push_back(graph.op(id).name);
    used.insert(request.GroupOf(names.back()));
  }
  for (const VariableGroup& group : request.groups) {
    if (used.contains(&group) || names.empty()) continue;
    return Error(absl::StrCat("group '", group.names, "' has none of the ", names.size(),
                              " variables to train, or groups before it have them; the nearest: ",
                              NearestNames(group.names, names)),
                 request.location);
  }
  return absl::OkStatus();
}

// Fills in the variables of requests that list none, and takes frozen ones out.
absl::Status ListVariables(LogicalGraph& graph) {
  std::set<OpId> trained;
  for (MinimizeRequest& request : graph.minimize()) {
    BRAID_RETURN_IF_ERROR(CheckLoss(graph, request));
    if (request.variables.empty()) {
      const std::vector<bool> is_ancestor = AncestorsOf(graph, request.loss);
      for (const Op& op : graph.ops()) {
        if (is_ancestor[op.id] && IsTrainable(graph, op) &&
            IsFloating(graph.type(op.outputs[0]).dtype)) {
          request.variables.push_back(op.id);
        }
      }
    }
    BRAID_RETURN_IF_ERROR(CheckGroups(graph, request));
    const size_t frozen = std::erase_if(request.variables, [&](OpId id) {
      const VariableGroup* const group = request.GroupOf(graph.op(id).name);
      return group != nullptr && group->is_frozen;
    });
    if (request.variables.empty() && frozen > 0) {
      return Error("every variable is in a group that is frozen, so there is nothing to train",
                   request.location);
    }
    for (OpId id : request.variables) {
      const Op& op = graph.op(id);
      if (!IsVariable(graph, op) || !IsFloating(graph.type(op.outputs[0]).dtype)) {
        return Error(absl::StrCat(Named(op), " is no floating variable, so it cannot be trained"),
                     request.location);
      }
      if (!trained.insert(id).second) {
        return Error(absl::StrCat(Named(op),
                                  " is trained by two Minimize calls; list the "
                                  "variables of each"),
                     request.location);
      }
    }
  }
  return absl::OkStatus();
}

// Tensors whose gradient somebody asked for, with the line where.
std::map<TensorId, SourceLocation> WantedTensors(const LogicalGraph& graph) {
  std::map<TensorId, SourceLocation> wanted;
  for (const auto& [of, gradient] : graph.gradients()) {
    if (gradient == kNone) wanted.emplace(of, graph.producer(of).location);
  }
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kGradientRequest)) wanted.emplace(op.inputs[0], op.location);
  }
  return wanted;
}

// The gradients of the loss itself, of those of the loss times its scale.
void Unscale(LogicalGraph& graph, const MinimizeRequest& request,
             std::map<TensorId, TensorId>& gradients) {
  const SourceLocation& where = request.location;
  graph.PushScope(graph.producer(request.loss_scale).name);
  const Tensor factor = Reciprocal(Tensor(&graph, request.loss_scale), where);
  graph.PopScope();
  for (auto& [of, gradient] : gradients) {
    const Op source = graph.producer(of);
    graph.PushScope(absl::StrCat(source.name, ".grad"));
    graph.PushPlacement(source.placement);
    const Tensor scaled(&graph, gradient);
    gradient = Mul(scaled, Cast(factor, scaled.dtype(), where), where).id();
    graph.PopPlacement();
    graph.PopScope();
  }
}

// By variable's value: what its mirrored gradients come to.
std::map<TensorId, TensorId> ReducedGradients(const LogicalGraph& graph) {
  std::map<TensorId, TensorId> reduced;
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kReducedGradient)) reduced[op.inputs[0]] = op.inputs[1];
  }
  return reduced;
}

// With what comes otherwise, in `gradients`.
void AddReduced(LogicalGraph& graph, const std::map<TensorId, TensorId>& reduced,
                const std::set<TensorId>& targets, const SourceLocation& where,
                std::map<TensorId, TensorId>& gradients) {
  for (const auto& [variable, gradient] : reduced) {
    if (!targets.contains(variable)) continue;
    const auto [other, is_alone] = gradients.try_emplace(variable, gradient);
    if (is_alone) continue;
    graph.PushScope(absl::StrCat(graph.producer(variable).name, ".grad"));
    other->second = Add(Tensor(&graph, gradient), Tensor(&graph, other->second), where).id();
    graph.PopScope();
  }
}

void ReplaceGradientOfOps(LogicalGraph& graph) {
  std::map<TensorId, TensorId> replacements;
  std::vector<bool> keep(graph.ops().size(), true);
  for (const Op& op : graph.ops()) {
    if (HasRole(graph, op, OpRole::kReducedGradient)) keep[op.id] = false;
    if (!HasRole(graph, op, OpRole::kGradientRequest)) continue;
    replacements[op.outputs[0]] = graph.gradients().at(op.inputs[0]);
    keep[op.id] = false;
  }
  if (std::ranges::all_of(keep, std::identity())) return;
  const auto replace = [&replacements](TensorId& tensor) {
    const auto found = replacements.find(tensor);
    if (found != replacements.end()) tensor = found->second;
  };
  for (Op& op : graph.mutable_ops()) {
    for (TensorId& input : op.inputs) replace(input);
  }
  for (MinimizeRequest& request : graph.minimize()) replace(request.learning_rate);
  for (auto& [of, gradient] : graph.gradients()) replace(gradient);
  graph.Prune(keep);
  graph.SortTopologically();
}

}  // namespace

absl::StatusOr<LogicalGraph> Autograd(LogicalGraph graph) {
  BRAID_RETURN_IF_ERROR(graph.status());
  graph.SortTopologically();  // ids are an order from here on
  BRAID_RETURN_IF_ERROR(ListVariables(graph));
  const std::map<TensorId, SourceLocation> wanted = WantedTensors(graph);
  const std::map<TensorId, TensorId> reduced = ReducedGradients(graph);
  std::set<TensorId> trained;
  for (const MinimizeRequest& request : graph.minimize()) {
    for (OpId variable : request.variables) trained.insert(graph.op(variable).outputs[0]);
  }

  for (size_t i = 0; i < graph.minimize().size(); ++i) {
    const MinimizeRequest request = graph.minimize()[i];
    std::set<TensorId> targets;
    for (OpId variable : request.variables) targets.insert(graph.op(variable).outputs[0]);
    const std::vector<OpId> variables = request.variables;
    // Variables of another request are that one's.
    for (const auto& [tensor, where] : wanted) {
      const auto known = graph.gradients().find(tensor);
      const bool is_open = known == graph.gradients().end() || known->second == kNone;
      if (is_open && !trained.contains(tensor)) targets.insert(tensor);
    }
    Sweep sweep(graph, request, targets, reduced);
    BRAID_RETURN_IF_ERROR(sweep.Run());
    std::map<TensorId, TensorId> gradients;
    for (TensorId target : targets) {
      const TensorId gradient = sweep.GradientOf(target);
      if (gradient != kNone) gradients[target] = gradient;
    }
    if (request.loss_scale != kNone) Unscale(graph, request, gradients);
    AddReduced(graph, reduced, targets, request.location, gradients);
    for (const auto& [of, gradient] : gradients) graph.gradients()[of] = gradient;
    // What StopGradient cuts off keeps its value.
    std::vector<OpId> reached;
    for (OpId variable : variables) {
      if (gradients.contains(graph.op(variable).outputs[0])) reached.push_back(variable);
    }
    if (reached.empty()) {
      return Error(absl::StrCat("the loss, ", Named(graph.producer(request.loss)),
                                ", does not depend on any variable to train"),
                   request.location);
    }
    graph.minimize()[i].variables = std::move(reached);
  }

  for (const auto& [tensor, where] : wanted) {
    const auto known = graph.gradients().find(tensor);
    if (known == graph.gradients().end() || known->second == kNone) {
      return Error(
          absl::StrCat(
              "the gradient of ", Named(graph.producer(tensor)), " is asked for, but ",
              graph.minimize().empty() ? "the job calls no Minimize" : "no loss depends on it"),
          where);
    }
  }
  ReplaceGradientOfOps(graph);
  return graph;
}

}  // namespace braid::compiler
