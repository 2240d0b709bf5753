#include "compiler/logical/fuse.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compiler/logical/fusion_patterns.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

class Fusing {
 public:
  explicit Fusing(LogicalGraph& graph)
      : graph_(graph),
        consumers_(graph.Consumers()),
        keep_(graph.ops().size(), true),
        part_of_(graph.ops().size()) {
    std::iota(part_of_.begin(), part_of_.end(), 0);
  }

  void Run() {
    const std::vector<FusionPattern> patterns = FusionPatterns();
    for (const Op& op : graph_.ops()) {
      for (const FusionPattern& pattern : patterns) FuseInto(pattern, op.id);
    }
    for (Op& op : graph_.mutable_ops()) {
      if (op.forward != kNone) op.forward = part_of_[op.forward];
    }
    graph_.Prune(keep_);
    graph_.SortTopologically();
  }

 private:
  // A root and what follows it, found from the last step backwards.
  struct Chain {
    std::vector<OpId> steps;       // the last one first
    std::vector<TensorId> others;  // that steps take, the last step's first
    OpId root = kNone;
  };

  void FuseInto(const FusionPattern& pattern, OpId last) {
    if (!keep_[last]) return;
    Chain chain;
    if (!Match(pattern, static_cast<int>(pattern.steps.size()) - 1, last, chain)) return;
    Op& root = graph_.mutable_op(chain.root);
    root.inputs.insert(root.inputs.end(), chain.others.rbegin(), chain.others.rend());
    root.attrs.Set(std::string(pattern.flag), true);
    root.hints = graph_.op(last).hints;
    TakePlace(chain.root, last);
    for (OpId step : chain.steps) {
      keep_[step] = false;
      part_of_[step] = chain.root;
    }
    if (!pattern.gradient.op.empty()) FuseGradients(pattern, chain.root);
  }

  // Whether `op` is the step, behind all that stand before it.
  bool Match(const FusionPattern& pattern, int step, OpId op, Chain& chain) const {
    const FusionStep& wanted = pattern.steps[step];
    const Op& found = graph_.op(op);
    if (found.type != wanted.op) return false;
    for (size_t side = 0; side < (wanted.takes_other ? 2u : 1u); ++side) {
      const TensorId before = found.inputs[side];
      if (!IsBetween(before, op)) continue;
      Chain longer = chain;
      longer.steps.push_back(op);
      if (wanted.takes_other) {
        const TensorId other = found.inputs[1 - side];
        if (graph_.type(other) != graph_.type(found.outputs[0])) continue;
        longer.others.push_back(other);
      }
      const Op& producer = graph_.producer(before);
      const bool matches =
          step > 0 ? Match(pattern, step - 1, producer.id, longer) : IsPlainRoot(pattern, producer);
      if (!matches) continue;
      if (step == 0) longer.root = producer.id;
      chain = std::move(longer);
      return true;
    }
    return false;
  }

  static bool IsPlainRoot(const FusionPattern& pattern, const Op& op) {
    return op.type == pattern.root && op.inputs.size() == static_cast<size_t>(pattern.inputs) &&
           !op.attrs.Has(pattern.flag);
  }

  // Whether `tensor` is only what its producer hands to `consumer`.
  bool IsBetween(TensorId tensor, OpId consumer) const {
    const Op &from = graph_.producer(tensor), &to = graph_.op(consumer);
    return consumers_[tensor].size() == 1 && !HasHint(from) && from.placement == to.placement &&
           from.block == to.block && from.is_again == to.is_again &&
           from.acts_per_step == to.acts_per_step;
  }

  // `root` makes what `last` made.
  void TakePlace(OpId root, OpId last) {
    const TensorId result = graph_.op(root).outputs[0], replaced = graph_.op(last).outputs[0];
    for (const auto& [consumer, input] : consumers_[replaced]) {
      graph_.mutable_op(consumer).inputs[input] = result;
    }
    consumers_[result] = std::move(consumers_[replaced]);
    consumers_[replaced].clear();
  }

  void FuseGradients(const FusionPattern& pattern, OpId root) {
    for (const auto& [consumer, input] : consumers_[graph_.op(root).outputs[0]]) {
      if (graph_.op(consumer).type == pattern.gradient.op && input == 0) {
        FuseGradient(pattern, root, consumer);
      }
    }
  }

  // If all that `gradient` makes goes to the root's own gradients.
  void FuseGradient(const FusionPattern& pattern, OpId root, OpId gradient) {
    const auto& uses = consumers_[graph_.op(gradient).outputs[0]];
    const auto is_own = [&](const std::pair<OpId, int>& use) {
      const Op &op = graph_.op(use.first), &of = graph_.op(root);
      return TakerOf(pattern, op, use.second) != nullptr && op.placement == of.placement &&
             std::equal(of.inputs.begin(), of.inputs.begin() + pattern.gradient.shared,
                        op.inputs.begin());
    };
    if (HasHint(graph_.op(gradient)) || !std::all_of(uses.begin(), uses.end(), is_own)) return;
    const TensorId arriving = graph_.op(gradient).inputs[1];
    for (const auto& [id, input] : uses) {
      Op& op = graph_.mutable_op(id);
      const FlowTaker& taker = *TakerOf(pattern, op, input);
      op.inputs[input] = arriving;
      for (int index : taker.more_inputs) op.inputs.push_back(graph_.op(root).inputs[index]);
      op.attrs.Set(std::string(pattern.flag), true);
    }
    keep_[gradient] = false;  // nothing has it as its forward op
  }

  static const FlowTaker* TakerOf(const FusionPattern& pattern, const Op& op, int input) {
    for (const FlowTaker& taker : pattern.gradient.takers) {
      if (op.type == taker.op && input == taker.flow) return &taker;
    }
    return nullptr;
  }

  LogicalGraph& graph_;
  std::vector<std::vector<std::pair<OpId, int>>> consumers_;
  std::vector<bool> keep_;
  std::vector<OpId> part_of_;  // the op itself, or the root that does its work
};

}  // namespace

LogicalGraph Fuse(LogicalGraph graph) {
  Fusing(graph).Run();
  return graph;
}

}  // namespace braid::compiler
