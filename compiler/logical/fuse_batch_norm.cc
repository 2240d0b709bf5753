#include "compiler/logical/fuse_batch_norm.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/logical/op_roles.h"

namespace braid::compiler {
namespace {

// Operands of batch_norm, batch_norm_sums and batch_norm_dx.
constexpr int kShared = 3;  // x and its statistics are the first of each
constexpr int kGamma = 3, kBeta = 4, kPlainOperands = 5;
constexpr int kFlowOfSums = 3, kFlowOfInputGradient = 4;

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
    for (const Op& op : graph_.ops()) {
      if (op.type == "relu") FuseInto(op.id);
    }
    for (Op& op : graph_.mutable_ops()) {
      if (op.forward != kNone) op.forward = part_of_[op.forward];
    }
    graph_.Prune(keep_);
    graph_.SortTopologically();
  }

 private:
  void FuseInto(OpId relu) {
    const TensorId before = graph_.op(relu).inputs[0];
    const Op& producer = graph_.producer(before);
    if (!IsBetween(before, relu)) return;
    if (IsPlainNorm(producer)) {
      const OpId norm = producer.id;
      Rectify(norm, relu);
      FuseGradients(norm);
      return;
    }
    if (producer.type != "add") return;
    for (int side : {0, 1}) {
      const TensorId term = producer.inputs[side], other = producer.inputs[1 - side];
      const bool is_alike = graph_.type(other) == graph_.type(before);
      if (!IsPlainNorm(graph_.producer(term)) || !IsBetween(term, producer.id) || !is_alike) {
        continue;
      }
      const OpId norm = graph_.producer(term).id;
      graph_.mutable_op(norm).inputs.push_back(other);
      Absorb(norm, producer.id);
      Rectify(norm, relu);
      return;
    }
  }

  static bool IsPlainNorm(const Op& op) {
    return op.type == "batch_norm" && op.inputs.size() == kPlainOperands && !op.attrs.Has("relu");
  }

  // Whether `tensor` is only what its producer hands to `consumer`.
  bool IsBetween(TensorId tensor, OpId consumer) const {
    const Op &from = graph_.producer(tensor), &to = graph_.op(consumer);
    return consumers_[tensor].size() == 1 && !HasHint(from) && from.placement == to.placement &&
           from.block == to.block && from.is_again == to.is_again && from.rate == to.rate;
  }

  // `norm` makes what `relu` made.
  void Rectify(OpId norm, OpId relu) {
    const TensorId result = graph_.op(norm).outputs[0], rectified = graph_.op(relu).outputs[0];
    graph_.mutable_op(norm).attrs.Set("relu", true);
    graph_.mutable_op(norm).hints = graph_.op(relu).hints;
    for (const auto& [consumer, input] : consumers_[rectified]) {
      graph_.mutable_op(consumer).inputs[input] = result;
    }
    consumers_[result] = std::move(consumers_[rectified]);
    consumers_[rectified].clear();
    Absorb(norm, relu);
  }
  void Absorb(OpId norm, OpId op) {
    keep_[op] = false;
    part_of_[op] = norm;
  }

  void FuseGradients(OpId norm) {
    for (const auto& [consumer, input] : consumers_[graph_.op(norm).outputs[0]]) {
      const Op& gradient = graph_.op(consumer);
      if (gradient.type == "relu_grad" && input == 0) FuseGradient(norm, gradient.id);
    }
  }

  // If all that relu_grad makes goes to the norm's own gradients.
  void FuseGradient(OpId norm, OpId relu_grad) {
    const TensorId flow = graph_.op(relu_grad).outputs[0];
    const auto is_own = [&](const std::pair<OpId, int>& use) {
      const Op &op = graph_.op(use.first), &of = graph_.op(norm);
      const bool takes_flow = (op.type == "batch_norm_sums" && use.second == kFlowOfSums) ||
                              (op.type == "batch_norm_dx" && use.second == kFlowOfInputGradient);
      return takes_flow && op.placement == of.placement &&
             std::equal(of.inputs.begin(), of.inputs.begin() + kShared, op.inputs.begin());
    };
    const auto& uses = consumers_[flow];
    if (HasHint(graph_.op(relu_grad)) || !std::all_of(uses.begin(), uses.end(), is_own)) return;
    const TensorId arriving = graph_.op(relu_grad).inputs[1];
    const TensorId gamma = graph_.op(norm).inputs[kGamma], beta = graph_.op(norm).inputs[kBeta];
    for (const auto& [id, input] : uses) {
      Op& op = graph_.mutable_op(id);
      op.inputs[input] = arriving;
      if (op.type == "batch_norm_sums") op.inputs.push_back(gamma);
      op.inputs.push_back(beta);
      op.attrs.Set("relu", true);
    }
    keep_[relu_grad] = false;  // nothing has it as its forward op
  }

  LogicalGraph& graph_;
  std::vector<std::vector<std::pair<OpId, int>>> consumers_;
  std::vector<bool> keep_;
  std::vector<OpId> part_of_;  // the op itself, or the norm that does its work
};

}  // namespace

LogicalGraph FuseBatchNorm(LogicalGraph graph) {
  Fusing(graph).Run();
  return graph;
}

}  // namespace braid::compiler
