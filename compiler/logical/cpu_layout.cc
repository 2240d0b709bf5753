#include "compiler/logical/cpu_layout.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/cpu_layouts.h"
#include "graph/op_def.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

// A plain operand of an op that prefers blocks is reordered by its kernel, a piece at a time in
// cache. An op that reorders a whole tensor through memory costs as much as about so many of these.
constexpr int kCostOfReorder = 2;
constexpr int kChannels = 1;  // their axis

class Blocking {
 public:
  Blocking(LogicalGraph& graph, const CpuLayoutOptions& options)
      : graph_(graph),
        options_(options),
        chain_(graph.tensors().size()),
        gain_(graph.tensors().size()) {
    for (const CpuLayout& layout : CpuLayouts()) table_.emplace(layout.op, layout);
    for (const ChannelMover& mover : ChannelMovers()) movers_.emplace(mover.op, mover);
    std::iota(chain_.begin(), chain_.end(), 0);
  }

  void Run() {
    for (const Op& op : graph_.ops()) {
      const std::vector<TensorId> operands = Chained(op);
      for (TensorId tensor : operands) Join(operands[0], tensor);
    }
    CountGains();
    const auto count =
        static_cast<OpId>(graph_.ops().size());  // the reorders that follow need none
    std::vector<TensorId> copies(graph_.tensors().size(), kNone);
    std::vector<std::pair<OpId, int>> reordered;
    for (OpId id = 0; id < count; ++id) {
      const Op& op = graph_.op(id);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const TensorId input = op.inputs[i];
        if (TakesInput(op, static_cast<int>(i)) != IsBlocked(input)) {
          reordered.emplace_back(id, static_cast<int>(i));
        }
      }
    }
    // By what the ops are before any of them changes.
    std::vector<std::pair<OpId, Attrs>> rewritten;
    for (OpId id = 0; id < count; ++id) Rewrite(id, rewritten);
    if (!rewritten.empty()) {
      graph_.SetRegistry(std::make_shared<const OpRegistry>(WithCpuLayouts(graph_.registry())));
    }
    std::vector<TensorId> blocked;
    for (TensorId id = 0; id < static_cast<TensorId>(chain_.size()); ++id) {
      if (IsBlocked(id)) blocked.push_back(id);
    }
    for (TensorId id : blocked) {
      graph_.SetShape(id, BlockedShape(graph_.type(id).shape, options_.channel_block));
    }
    for (auto& [id, attrs] : rewritten) graph_.mutable_op(id).attrs = std::move(attrs);
    for (const auto& [id, input] : reordered) {
      const TensorId tensor = graph_.op(id).inputs[input];
      if (copies[tensor] == kNone) {
        const bool was_blocked = std::binary_search(blocked.begin(), blocked.end(), tensor);
        copies[tensor] = Reordered(tensor, was_blocked);
      }
      graph_.mutable_op(id).inputs[input] = copies[tensor];
    }
    graph_.SortTopologically();
  }

 private:
  // null: not in the table.
  const CpuLayout* LayoutOf(const Op& op) const {
    const auto found = table_.find(op.type);
    return found == table_.end() ? nullptr : &found->second;
  }

  // A layout that the user asked for is one of the plain tensor.
  static bool IsFixed(const Op& op) {
    return HasHint(op) || !HasCpuLayouts(op.placement->device_type());
  }

  bool CanBlock(TensorId tensor) const {
    if (!HasCpuLayouts(graph_.producer(tensor).placement->device_type())) return false;
    const TensorType& type = graph_.type(tensor);
    return IsFloating(type.dtype) && type.dtype != DType::kF64 &&
           CanBlockChannels(type.shape, options_.channel_block);
  }

  // Whether blocks are to the op what channels are, so that it is the same op on tensors of other
  // shapes: each element keeps meeting the same ones.
  bool GoesAlong(const Op& op) const {
    const auto can_block = [this](TensorId tensor) { return CanBlock(tensor); };
    if (!std::ranges::all_of(op.outputs, can_block)) return false;
    if (MoverOf(op) != nullptr) return std::ranges::all_of(op.inputs, can_block);
    if (!DefOf(graph_, op).is_pointwise() || op.outputs.size() != 1) return false;
    const Shape& shape = graph_.type(op.outputs[0]).shape;
    return std::ranges::all_of(op.inputs, [&](TensorId input) {
      const Shape& of = graph_.type(input).shape;
      if (of.num_elements() == 1) return true;  // it stays what it is
      return CanBlock(input) && of.rank() == shape.rank() && of[kChannels] == shape[kChannels];
    });
  }

  // null: it moves no channels.
  const ChannelMover* MoverOf(const Op& op) const {
    const auto found = movers_.find(op.type);
    if (found == movers_.end() || op.attrs.Int("axis") != kChannels) return nullptr;
    return &found->second;
  }

  // The operands that may be blocked: all of them or none.
  std::vector<TensorId> Chained(const Op& op) const {
    std::vector<TensorId> tensors;
    if (IsFixed(op)) return tensors;
    if (GoesAlong(op)) {
      std::ranges::copy_if(op.inputs, std::back_inserter(tensors),
                           [this](TensorId input) { return CanBlock(input); });
      tensors.insert(tensors.end(), op.outputs.begin(), op.outputs.end());
      return tensors;
    }
    const auto add = [&](const std::vector<TensorId>& operands, const std::vector<int>& listed) {
      for (int i : listed) {
        const bool is_there = i < static_cast<int>(operands.size());
        if (is_there && CanBlock(operands[i])) tensors.push_back(operands[i]);
      }
    };
    if (const CpuLayout* layout = LayoutOf(op)) {
      add(op.inputs, layout->blocks.inputs);
      add(op.outputs, layout->blocks.outputs);
    }
    return tensors;
  }

  TensorId ChainOf(TensorId tensor) {
    while (chain_[tensor] != tensor) tensor = chain_[tensor] = chain_[chain_[tensor]];
    return tensor;
  }
  void Join(TensorId a, TensorId b) { chain_[ChainOf(b)] = ChainOf(a); }

  bool Takes(const Op& op, TensorId tensor) const {
    const std::vector<TensorId> operands = Chained(op);
    return std::find(operands.begin(), operands.end(), tensor) != operands.end();
  }
  bool Makes(TensorId tensor) const { return Takes(graph_.producer(tensor), tensor); }

  // What blocking saves per chain: reorders inside the kernels that prefer blocks, less those at
  // its ends.
  void CountGains() {
    std::vector<bool> is_reordered(graph_.tensors().size(), false);
    for (const Op& op : graph_.ops()) {
      const CpuLayout* layout = LayoutOf(op);
      const bool is_glad = layout != nullptr && layout->prefers_blocks;
      for (TensorId tensor : Chained(op)) {
        if (is_glad) ++gain_[ChainOf(tensor)];
        const bool is_input =
            std::find(op.inputs.begin(), op.inputs.end(), tensor) != op.inputs.end();
        if (is_input && !Makes(tensor)) is_reordered[tensor] = true;
      }
      for (TensorId input : op.inputs) {
        if (CanBlock(input) && Makes(input) && !Takes(op, input)) is_reordered[input] = true;
      }
    }
    for (TensorId id = 0; id < static_cast<TensorId>(chain_.size()); ++id) {
      if (is_reordered[id] && !IsPixel(id)) gain_[ChainOf(id)] -= kCostOfReorder;
    }
  }

  // Whether it has one number of each image and channel, so that reordering it costs nothing.
  bool IsPixel(TensorId tensor) const {
    const Shape& shape = graph_.type(tensor).shape;
    return shape.num_elements() == shape[0] * shape[kChannels];
  }

  bool IsChosen(TensorId tensor) { return CanBlock(tensor) && gain_[ChainOf(tensor)] > 0; }
  // The tensor itself; of one that comes plain, its blocked copy is another.
  bool IsBlocked(TensorId tensor) { return IsChosen(tensor) && Makes(tensor); }
  bool TakesInput(const Op& op, int input) {
    if (!IsChosen(op.inputs[input])) return false;
    if (IsFixed(op)) return false;
    if (GoesAlong(op)) return true;
    const CpuLayout* layout = LayoutOf(op);
    return layout != nullptr &&
           std::ranges::find(layout->blocks.inputs, input) != layout->blocks.inputs.end();
  }

  void Rewrite(OpId id, std::vector<std::pair<OpId, Attrs>>& rewritten) {
    const Op& op = graph_.op(id);
    if (const ChannelMover* mover = MoverOf(op); mover != nullptr && !IsFixed(op)) {
      if (mover->sizes.empty() || !GoesAlong(op) || !IsChosen(op.outputs[0])) return;
      Attrs attrs = op.attrs;
      std::vector<int64_t> sizes = attrs.Ints(mover->sizes);
      for (int64_t& size : sizes) size /= options_.channel_block;
      attrs.Set(mover->sizes, std::move(sizes));
      rewritten.emplace_back(id, std::move(attrs));
      return;
    }
    const CpuLayout* layout = LayoutOf(op);
    if (layout == nullptr || IsFixed(op)) return;
    std::vector<int64_t> inputs, outputs;
    for (int i : layout->blocks.inputs) {
      if (i < static_cast<int>(op.inputs.size()) && TakesInput(op, i)) inputs.push_back(i);
    }
    for (int i : layout->blocks.outputs) {
      if (IsChosen(op.outputs[i])) outputs.push_back(i);
    }
    if (inputs.empty() && outputs.empty()) return;
    Attrs attrs = op.attrs;
    attrs.Set(kBlockedInputs, std::move(inputs));
    attrs.Set(kBlockedOutputs, std::move(outputs));
    attrs.Set(kChannelBlock, options_.channel_block);
    if (options_.winograd && HasWinogradWindows(op, layout->weights)) attrs.Set(kWinograd, true);
    rewritten.emplace_back(id, std::move(attrs));
  }

  bool HasWinogradWindows(const Op& op, Weights weights) const {
    constexpr int64_t kWindow = 3;
    if (weights == Weights::kNone) return false;
    const Shape& w = graph_.type(weights == Weights::kOutput ? op.outputs[0] : op.inputs[1]).shape;
    return w.rank() == 4 && w[2] == kWindow && w[3] == kWindow;
  }

  // At its producer's place, under its name.
  TensorId Reordered(TensorId tensor, bool was_blocked) {
    const Op producer = graph_.producer(tensor);
    graph_.PushPlacement(producer.placement);
    graph_.PushScope(producer.name);
    graph_.set_current_forward(producer.forward);
    const Tensor x(&graph_, tensor);
    const Tensor copy = was_blocked ? UnblockChannels(x, producer.location)
                                    : BlockChannels(x, options_.channel_block, producer.location);
    graph_.set_current_forward(kNone);
    graph_.PopScope();
    graph_.PopPlacement();
    CHECK(copy.valid()) << graph_.status();
    return copy.id();
  }

  LogicalGraph& graph_;
  const CpuLayoutOptions& options_;
  std::map<std::string, CpuLayout, std::less<>> table_;      // by op
  std::map<std::string, ChannelMover, std::less<>> movers_;  // by op
  std::vector<TensorId> chain_;  // a forest over tensors, whose roots name the chains
  std::vector<int> gain_;        // per root
};

}  // namespace

LogicalGraph LayOutForCpus(LogicalGraph graph, const CpuLayoutOptions& options) {
  Blocking(graph, options).Run();
  return graph;
}

}  // namespace braid::compiler
