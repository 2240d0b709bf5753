#include "compiler/logical/fold_norms.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/logical/fusion_patterns.h"
#include "graph/functional.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

class NormFolding {
 public:
  explicit NormFolding(LogicalGraph& graph)
      : graph_(graph), consumers_(graph.Consumers()), keep_(graph.ops().size(), true) {
    for (const Op& op : graph_.ops()) {
      const bool is_steady =
          IsVariable(graph_, op) ||
          (IsFunction(DefOf(graph_, op)) &&
           std::ranges::all_of(op.inputs, [&](TensorId input) { return is_steady_[input]; }));
      is_steady_.resize(std::max(is_steady_.size(), graph_.tensors().size()), false);
      for (TensorId output : op.outputs) is_steady_[output] = is_steady;
    }
  }

  void Run() {
    const std::vector<FoldedNorm> folded = FoldedNorms();
    const auto ops = static_cast<OpId>(graph_.ops().size());
    for (OpId id = 0; id < ops; ++id) {
      for (const FoldedNorm& form : folded) {
        if (Matches(form, graph_.op(id))) Fold(form, id);
      }
    }
    keep_.resize(graph_.ops().size(), true);
    if (std::ranges::find(keep_, false) == keep_.end()) return;
    graph_.Prune(keep_);
    graph_.SortTopologically();
  }

 private:
  bool Matches(const FoldedNorm& form, const Op& norm) const {
    if (norm.type != form.norm || norm.inputs.size() != form.norm_inputs ||
        (norm.attrs.Has("training") && norm.attrs.Bool("training"))) {
      return false;
    }
    const Op& product = graph_.producer(norm.inputs[0]);
    const auto is_steady = [&](TensorId tensor) { return is_steady_[tensor]; };
    const DType dtype = graph_.type(norm.inputs[0]).dtype;
    return product.type == form.product && keep_[product.id] &&
           consumers_[norm.inputs[0]].size() == 1 && !HasHint(product) &&
           product.placement == norm.placement &&
           std::all_of(product.inputs.begin() + 1, product.inputs.end(), is_steady) &&
           std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), is_steady) &&
           (dtype == DType::kF32 || dtype == DType::kF64) &&
           graph_.type(product.inputs[form.weights]).dtype == dtype;
  }

  void Fold(const FoldedNorm& form, OpId id) {
    const Op norm = graph_.op(id), product = graph_.producer(norm.inputs[0]);
    const auto input = [&](const Op& op, int index) { return Tensor(&graph_, op.inputs[index]); };
    const SourceLocation where = norm.location;
    graph_.PushPlacement(norm.placement);
    graph_.PushScope(norm.name);
    const Tensor factor = Mul(
        input(norm, form.gamma),
        Rsqrt(AddScalar(input(norm, form.variance), norm.attrs.Double("epsilon"), where), where),
        where);
    const Tensor weights = input(product, form.weights);
    std::vector<int64_t> by_output(weights.shape().rank(), 1);
    by_output[0] = weights.shape()[0];
    const Tensor scaled = Mul(weights, Reshape(factor, Shape(by_output), where), where);
    const Tensor mean = input(norm, form.mean);
    const bool has_addend = product.inputs.size() > static_cast<size_t>(form.addend);
    const Tensor rest = has_addend ? Sub(mean, input(product, form.addend), where) : mean;
    const Tensor shift = Sub(input(norm, form.beta), Mul(rest, factor, where), where);
    graph_.PopScope();
    graph_.PopPlacement();
    CHECK(shift.valid() && scaled.valid()) << graph_.status();
    is_steady_.resize(graph_.tensors().size(), true);

    Op& changed = graph_.mutable_op(product.id);
    changed.inputs.resize(form.addend + 1);
    changed.inputs[form.weights] = scaled.id();
    changed.inputs[form.addend] = shift.id();
    changed.hints = norm.hints;
    const TensorId made = changed.outputs[0], replaced = norm.outputs[0];
    for (const auto& [consumer, index] : consumers_[replaced]) {
      graph_.mutable_op(consumer).inputs[index] = made;
    }
    consumers_[made] = std::move(consumers_[replaced]);
    keep_[id] = false;
  }

  LogicalGraph& graph_;
  std::vector<std::vector<std::pair<OpId, int>>> consumers_;
  std::vector<bool> keep_;
  std::vector<bool> is_steady_;  // by tensor: it depends on variables alone
};

}  // namespace

LogicalGraph FoldNorms(LogicalGraph graph) {
  const auto is_update = [&](const Op& op) { return IsUpdate(graph, op); };
  if (std::ranges::none_of(graph.ops(), is_update)) NormFolding(graph).Run();
  return graph;
}

}  // namespace braid::compiler
