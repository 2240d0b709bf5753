#include "compiler/logical/channel_layout.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/channel_layouts.h"
#include "graph/functional.h"
#include "graph/op_def.h"
#include "graph/op_registry.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

// A plain operand of an op that prefers blocks is reordered by its kernel, a piece at a time in
// cache. An op that reorders a whole tensor through memory costs as much as about so many of these.
constexpr int kCostOfReorder = 2;
constexpr int kChannels = 1;  // their axis
// Convolutions with an operand that has no whole wide blocks reorder it. Measured on CPUs with
// vectors of 64 bytes: where these are more than so much of a chain's work, blocks of half a
// vector's channels, which fit all operands, are faster. Where convolutions are large, one block of
// all channels is faster still, also with fewer such operands; and so it is where channels are put
// last, as norms want them, which costs nothing then.
constexpr double kShareOfUnfit = 0.4, kShareOfUnfitInLarge = 0.15;
constexpr double kFlopsOfLarge = 4e5;  // on average
// Unless what puts channels side by side, pixel by pixel then, stands behind every other one.
constexpr double kShareOfMovers = 0.4;
// Images of fewer channels, such as pictures, are reordered by the CPU's convolution that reads
// them.
constexpr int64_t kLeastWhole = 4;

class Blocking {
 public:
  Blocking(LogicalGraph& graph, const ChannelLayoutOptions& options)
      : graph_(graph),
        options_(options),
        puts_channels_last_(WantsChannelsLast(graph, options)),
        block_(graph.tensors().size(), puts_channels_last_ ? kWholeBlock : options.channel_block),
        chain_(graph.tensors().size()),
        gain_(graph.tensors().size()) {
    for (const ChannelLayout& layout : ChannelLayouts()) table_.emplace(layout.op, layout);
    for (const ChannelMover& mover : ChannelMovers()) movers_.emplace(mover.op, mover);
    for (std::string& op : Reductions()) reductions_.insert(std::move(op));
  }

  void Run() {
    if (options_.may_fit_blocks && !puts_channels_last_) ChooseBlocks();
    JoinChains();
    CountGains();
    const auto count =
        static_cast<OpId>(graph_.ops().size());  // the reorders that follow need none
    std::vector<TensorId> copies(graph_.tensors().size(), kNone);
    std::vector<std::pair<OpId, int>> reordered, numbers;
    for (OpId id = 0; id < count; ++id) {
      const Op& op = graph_.op(id);
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const TensorId input = op.inputs[i];
        if (TakesInput(op, static_cast<int>(i)) == IsBlocked(input)) continue;
        auto& list = IsNumberPerChannel(op, input) ? numbers : reordered;
        list.emplace_back(id, static_cast<int>(i));
      }
    }
    // By what the ops are before any of them changes.
    std::vector<std::pair<OpId, Attrs>> rewritten;
    std::vector<std::pair<OpId, Channels>> moved;
    for (OpId id = 0; id < count; ++id) {
      Rewrite(id, rewritten);
      const Op& op = graph_.op(id);
      const Channels channels = ChannelsMovedBy(op);
      if (channels == Channels::kStay) continue;
      if (IsBlocked(channels == Channels::kLast ? op.inputs[0] : op.outputs[0])) {
        moved.emplace_back(id, channels);
      }
    }
    if (!rewritten.empty()) {
      graph_.SetRegistry(std::make_shared<const OpRegistry>(WithChannelLayouts(graph_.registry())));
    }
    std::vector<TensorId> blocked;
    for (TensorId id = 0; id < static_cast<TensorId>(chain_.size()); ++id) {
      if (IsBlocked(id)) blocked.push_back(id);
    }
    for (TensorId id : blocked) {
      graph_.SetShape(id, BlockedShape(graph_.type(id).shape, block_[id]));
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
    for (const auto& [id, input] : numbers) PutNumbersInBlocks(id, input);
    for (const auto& [id, channels] : moved) {
      channels == Channels::kLast ? PutBlocksLast(id) : PutBlocksSecond(id);
    }
    graph_.SortTopologically();
  }

 private:
  // Where an op that permutes axes puts the channels: from the second place to the last, or back.
  enum class Channels : uint8_t { kStay, kLast, kSecond };

  // All channels in one block cannot be split: not where the user wants weights split that have
  // some.
  static bool WantsChannelsLast(const LogicalGraph& graph, const ChannelLayoutOptions& options) {
    return options.puts_channels_last != nullptr &&
           std::ranges::all_of(graph.ops(), [&](const Op& op) {
             const bool has_split_channels = IsVariable(graph, op) && HasHint(op) &&
                                             !op.hints[0]->all_broadcast() &&
                                             graph.type(op.outputs[0]).shape.rank() > 2;
             return options.puts_channels_last(*op.placement) && !has_split_channels;
           });
  }
  bool HasLayouts(const Placement& placement) const {
    return puts_channels_last_ || HasCpuLayouts(placement.device_type());
  }

  // null: not in the table.
  const ChannelLayout* LayoutOf(const Op& op) const {
    const auto found = table_.find(op.type);
    const bool is_there =
        found != table_.end() && (!puts_channels_last_ || found->second.is_on_cards);
    return is_there ? &found->second : nullptr;
  }

  // A layout that the user asked for is one of the plain tensor.
  bool IsFixed(const Op& op) const { return HasHint(op) || !HasLayouts(*op.placement); }

  // Bytes, and sums of their products, have blocks of all channels or none.
  static bool IsOfBytes(DType dtype) {
    return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kI32;
  }
  static bool HasBlocks(DType dtype, int64_t block) {
    return IsOfBytes(dtype) ? block == kWholeBlock : IsFloating(dtype) && dtype != DType::kF64;
  }

  bool CanBlock(TensorId tensor) const {
    if (!HasLayouts(*graph_.producer(tensor).placement)) return false;
    const TensorType& type = graph_.type(tensor);
    return HasBlocks(type.dtype, block_[tensor]) && CanBlockChannels(type.shape, block_[tensor]) &&
           (block_[tensor] != kWholeBlock || puts_channels_last_ ||
            type.shape[kChannels] >= kLeastWhole);
  }

  // Whether blocks are to the op what channels are, so that it is the same op on tensors of other
  // shapes: each element keeps meeting the same ones.
  bool GoesAlong(const Op& op) const {
    const auto can_block = [this](TensorId tensor) { return CanBlock(tensor); };
    if (!std::ranges::all_of(op.outputs, can_block)) return false;
    if (MoverOf(op) != nullptr || KeepsChannels(op) || SpreadsChannels(op)) {
      return std::ranges::all_of(op.inputs, can_block);
    }
    if (!DefOf(graph_, op).is_pointwise() || op.outputs.size() != 1) return false;
    const Shape& shape = graph_.type(op.outputs[0]).shape;
    return std::ranges::all_of(op.inputs, [&](TensorId input) {
      const Shape& of = graph_.type(input).shape;
      if (of.num_elements() == 1) return true;  // it stays what it is
      if (IsNumberPerChannel(op, input)) return true;
      return CanBlock(input) && of.rank() == shape.rank() && of[kChannels] == shape[kChannels];
    });
  }

  // Whether an operand of a pointwise op is [c, 1, ...] and broadcasts along the batch, too.
  bool IsNumberPerChannel(const Op& op, TensorId input) const {
    if (!DefOf(graph_, op).is_pointwise()) return false;
    const Shape &of = graph_.type(input).shape, &whole = graph_.type(op.outputs[0]).shape;
    return of.rank() > 1 && of.rank() == whole.rank() - 1 && of.num_elements() == of[0] &&
           of[0] > 1 && of[0] == whole[kChannels];
  }

  Channels ChannelsMovedBy(const Op& op) const {
    constexpr int kLeastRank = 4;  // with fewer axes there and back look alike
    if (op.type != kPermuting || IsFixed(op)) return Channels::kStay;
    const int rank = graph_.type(op.inputs[0]).shape.rank();
    if (rank < kLeastRank) return Channels::kStay;
    const std::vector<int64_t>& perm = op.attrs.Ints("perm");
    if (perm == ToLast(rank)) return Channels::kLast;
    return perm == ToSecond(rank) ? Channels::kSecond : Channels::kStay;
  }
  static std::vector<int64_t> ToLast(int rank) {
    std::vector<int64_t> perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin() + kChannels, perm.begin() + kChannels + 1, perm.end());
    return perm;
  }
  static std::vector<int64_t> ToSecond(int rank) {
    std::vector<int64_t> perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::rotate(perm.begin() + kChannels, perm.end() - 1, perm.end());
    return perm;
  }

  // null: it moves no channels.
  const ChannelMover* MoverOf(const Op& op) const {
    const auto found = movers_.find(op.type);
    if (found == movers_.end() || op.attrs.Int("axis") != kChannels) return nullptr;
    return &found->second;
  }

  // Whether it joins elements of a channel, in place of which it leaves axes of size 1.
  bool KeepsChannels(const Op& op) const {
    if (!reductions_.contains(op.type) || !op.attrs.Bool("keep_dims")) return false;
    const std::vector<int64_t>& axes = op.attrs.Ints("axes");
    return std::ranges::find(axes, kChannels) == axes.end();
  }

  // Whether it repeats elements of a channel in place of axes of size 1.
  bool SpreadsChannels(const Op& op) const {
    if (op.type != kSpreading) return false;
    const Shape &of = graph_.type(op.inputs[0]).shape, &to = graph_.type(op.outputs[0]).shape;
    return of.rank() == to.rank() && of.rank() > kChannels && of[kChannels] == to[kChannels];
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
    if (const ChannelLayout* layout = LayoutOf(op)) {
      add(op.inputs, layout->blocks.inputs);
      add(op.outputs, layout->blocks.outputs);
    }
    const Channels channels = ChannelsMovedBy(op);
    if (channels == Channels::kLast) add(op.inputs, {0});
    if (channels == Channels::kSecond) add(op.outputs, {0});
    return tensors;
  }

  TensorId ChainOf(TensorId tensor) {
    while (chain_[tensor] != tensor) tensor = chain_[tensor] = chain_[chain_[tensor]];
    return tensor;
  }
  void Join(TensorId a, TensorId b) { chain_[ChainOf(b)] = ChainOf(a); }
  void JoinChains() {
    std::iota(chain_.begin(), chain_.end(), 0);
    for (const Op& op : graph_.ops()) {
      const std::vector<TensorId> operands = Chained(op);
      for (TensorId tensor : operands) Join(operands[0], tensor);
    }
  }

  double FlopsOf(const Op& op) const {
    std::vector<TensorType> inputs, outputs;
    for (TensorId id : op.inputs) inputs.push_back(graph_.type(id));
    for (TensorId id : op.outputs) outputs.push_back(graph_.type(id));
    return DefOf(graph_, op).CountFlops({op.attrs, inputs, outputs});
  }

  // What the convolutions of a chain are like.
  struct Work {
    double flops = 0, unfit = 0;  // unfit: of those with an operand without whole wide blocks
    int convolutions = 0, movers = 0;
    bool moves_channels = false, multiplies_bytes = false;
    bool may_be_whole = true;  // of jobs that do not train, where all operators take that
  };
  std::vector<Work> CountWork() {  // per root
    std::vector<Work> work(chain_.size());
    for (const Op& op : graph_.ops()) {
      const std::vector<TensorId> operands = Chained(op);
      if (operands.empty()) continue;
      Work& of_chain = work[ChainOf(operands[0])];
      if (ChannelsMovedBy(op) != Channels::kStay) of_chain.moves_channels = true;
      if (MoverOf(op) != nullptr) ++of_chain.movers;
      const ChannelLayout* layout = LayoutOf(op);
      if (layout == nullptr) continue;
      of_chain.may_be_whole &= layout->takes_whole_blocks && layout->weights != Weights::kOutput;
      if (!layout->prefers_blocks) continue;
      const double flops = FlopsOf(op);
      ++of_chain.convolutions;
      of_chain.flops += flops;
      of_chain.multiplies_bytes |= IsOfBytes(graph_.type(op.inputs[0]).dtype);
      const auto is_unfit = [this](TensorId tensor) {
        return !CanBlockChannels(graph_.type(tensor).shape, kWideBlock);
      };
      if (std::ranges::any_of(operands, is_unfit)) of_chain.unfit += flops;
    }
    return work;
  }

  // How wide the blocks of each chain are, of the chains that there are if all have one block of
  // all channels; what is left over, likewise with narrow blocks.
  void ChooseBlocks() {
    ChooseWholeBlocks();
    if (options_.channel_block != kWideBlock) return;
    for (int64_t& block : block_) {
      if (block != kWholeBlock) block = kNarrowBlock;
    }
    JoinChains();
    const std::vector<Work> work = CountWork();
    for (TensorId id = 0; id < static_cast<TensorId>(chain_.size()); ++id) {
      const Work& of_chain = work[ChainOf(id)];
      const bool is_wide = of_chain.unfit <= kShareOfUnfit * of_chain.flops;
      if (block_[id] == kNarrowBlock && is_wide) block_[id] = kWideBlock;
    }
  }

  // Channels that are all in one block cannot be split, so none of the graph is.
  void ChooseWholeBlocks() {
    const auto is_on_one = [](const Op& op) { return op.placement->size() == 1; };
    if (!std::ranges::all_of(graph_.ops(), is_on_one)) return;
    std::ranges::fill(block_, kWholeBlock);
    JoinChains();
    const std::vector<Work> work = CountWork();
    for (TensorId id = 0; id < static_cast<TensorId>(chain_.size()); ++id) {
      const Work& of_chain = work[ChainOf(id)];
      const bool is_large = of_chain.flops > kFlopsOfLarge * of_chain.convolutions &&
                            of_chain.movers < kShareOfMovers * of_chain.convolutions;
      const bool has_odd_channels =
          is_large && of_chain.unfit > kShareOfUnfitInLarge * of_chain.flops;
      const bool is_faster =
          options_.channel_block == kWideBlock && (of_chain.moves_channels || has_odd_channels);
      const bool is_whole = (of_chain.multiplies_bytes || is_faster) && of_chain.may_be_whole;
      if (!is_whole) block_[id] = options_.channel_block;
    }
  }

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
      const ChannelLayout* layout = LayoutOf(op);
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
      if (is_reordered[id] && !IsPixel(graph_.type(id).shape)) gain_[ChainOf(id)] -= kCostOfReorder;
    }
  }

  bool IsChosen(TensorId tensor) { return CanBlock(tensor) && gain_[ChainOf(tensor)] > 0; }
  // The tensor itself; of one that comes plain, its blocked copy is another.
  bool IsBlocked(TensorId tensor) { return IsChosen(tensor) && Makes(tensor); }
  bool TakesInput(const Op& op, int input) {
    if (IsNumberPerChannel(op, op.inputs[input])) {
      return !IsFixed(op) && GoesAlong(op) && IsChosen(op.outputs[0]);
    }
    if (!IsChosen(op.inputs[input])) return false;
    if (IsFixed(op)) return false;
    if (GoesAlong(op) || ChannelsMovedBy(op) == Channels::kLast) return true;
    const ChannelLayout* layout = LayoutOf(op);
    return layout != nullptr &&
           std::ranges::find(layout->blocks.inputs, input) != layout->blocks.inputs.end();
  }

  void Rewrite(OpId id, std::vector<std::pair<OpId, Attrs>>& rewritten) {
    const Op& op = graph_.op(id);
    if (const ChannelMover* mover = MoverOf(op); mover != nullptr && !IsFixed(op)) {
      if (!GoesAlong(op) || !IsChosen(op.outputs[0])) return;
      Attrs attrs = op.attrs;
      const int64_t block = block_[op.outputs[0]];
      if (block == kWholeBlock) {
        attrs.Set("axis", int64_t{graph_.type(op.outputs[0]).shape.rank()});  // one more, the last
      } else if (!mover->sizes.empty()) {
        std::vector<int64_t> sizes = attrs.Ints(mover->sizes);
        for (int64_t& size : sizes) size /= block;
        attrs.Set(mover->sizes, std::move(sizes));
      }
      rewritten.emplace_back(id, std::move(attrs));
      return;
    }
    if (SpreadsChannels(op) && !IsFixed(op)) {
      if (!GoesAlong(op) || !IsChosen(op.outputs[0])) return;
      const TensorId output = op.outputs[0];
      Attrs attrs = op.attrs;
      attrs.Set("shape", BlockedShape(graph_.type(output).shape, block_[output]).dims());
      rewritten.emplace_back(id, std::move(attrs));
      return;
    }
    const ChannelLayout* layout = LayoutOf(op);
    if (layout == nullptr || IsFixed(op)) return;
    std::vector<int64_t> inputs, outputs;
    for (int i : layout->blocks.inputs) {
      if (i < static_cast<int>(op.inputs.size()) && TakesInput(op, i)) inputs.push_back(i);
    }
    for (int i : layout->blocks.outputs) {
      if (IsChosen(op.outputs[i])) outputs.push_back(i);
    }
    if (inputs.empty() && outputs.empty()) return;
    const TensorId blocked = inputs.empty() ? op.outputs[outputs[0]] : op.inputs[inputs[0]];
    Attrs attrs = op.attrs;
    attrs.Set(kBlockedInputs, std::move(inputs));
    attrs.Set(kBlockedOutputs, std::move(outputs));
    attrs.Set(kChannelBlock, block_[blocked]);
    const bool may_transform = options_.winograd && !puts_channels_last_;
    if (may_transform && HasWinogradWindows(op, layout->weights)) attrs.Set(kWinograd, true);
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
    return AppendedAt(graph_.producer(tensor), [&](SourceLocation where) {
      const Tensor x(&graph_, tensor);
      return was_blocked ? UnblockChannels(x, where) : BlockChannels(x, block_[tensor], where);
    });
  }

  // What `make` appends, at the place of `op` and under its name.
  template <class Make>
  TensorId AppendedAt(const Op op, Make make) {  // by value: the graph moves its own
    graph_.PushPlacement(op.placement);
    graph_.PushScope(op.name);
    graph_.set_current_forward(op.forward);
    const Tensor made = make(op.location);
    graph_.set_current_forward(kNone);
    graph_.PopScope();
    graph_.PopPlacement();
    CHECK(made.valid()) << graph_.status();
    return made.id();
  }

  // A number per channel lies in blocks as it lies without them.
  void PutNumbersInBlocks(OpId id, int input) {
    const TensorId numbers = graph_.op(id).inputs[input];
    const Shape& whole = graph_.type(graph_.op(id).outputs[0]).shape;  // is blocked
    std::vector<int64_t> dims(whole.rank(), 1);
    dims[kChannels] = whole[kChannels];
    dims.back() = whole[whole.rank() - 1];
    graph_.mutable_op(id).inputs[input] =
        AppendedAt(graph_.producer(numbers), [&](SourceLocation where) {
          return Reshape(Tensor(&graph_, numbers), Shape(std::move(dims)), where);
        });
  }

  // From [n, c / block, space..., block] to [n, space..., c]: the op takes what is permuted
  // already, and only joins the last two axes.
  void PutBlocksLast(OpId id) {
    const Op op = graph_.op(id);
    std::vector<int64_t> perm = ToLast(graph_.type(op.outputs[0]).shape.rank());
    perm.push_back(static_cast<int64_t>(perm.size()));
    const bool is_last = block_[op.inputs[0]] == kWholeBlock;
    const TensorId permuted = is_last ? op.inputs[0] : AppendedAt(op, [&](SourceLocation where) {
      return Transpose(Tensor(&graph_, op.inputs[0]), std::move(perm), where);
    });
    Op& joined = graph_.mutable_op(id);
    joined.type = kReshaping;
    joined.attrs = {{"shape", graph_.type(op.outputs[0]).shape.dims()}};
    joined.inputs[0] = permuted;
  }

  // And back: the op takes what is cut into blocks already.
  void PutBlocksSecond(OpId id) {
    const Op op = graph_.op(id);
    if (block_[op.outputs[0]] == kWholeBlock) {
      Op& cut = graph_.mutable_op(id);
      cut.type = kReshaping;
      cut.attrs = {{"shape", graph_.type(op.outputs[0]).shape.dims()}};
      return;
    }
    std::vector<int64_t> dims = graph_.type(op.inputs[0]).shape.dims();
    const int64_t block = block_[op.outputs[0]];
    dims.back() /= block;
    dims.push_back(block);
    const TensorId cut = AppendedAt(graph_.producer(op.inputs[0]), [&](SourceLocation where) {
      return Reshape(Tensor(&graph_, op.inputs[0]), Shape(std::move(dims)), where);
    });
    std::vector<int64_t> perm = ToSecond(graph_.type(op.inputs[0]).shape.rank());
    perm.push_back(static_cast<int64_t>(perm.size()));
    Op& permuted = graph_.mutable_op(id);
    permuted.attrs.Set("perm", std::move(perm));
    permuted.inputs[0] = cut;
  }

  LogicalGraph& graph_;
  const ChannelLayoutOptions& options_;
  const bool puts_channels_last_;
  std::map<std::string, ChannelLayout, std::less<>> table_;  // by op
  std::map<std::string, ChannelMover, std::less<>> movers_;  // by op
  std::set<std::string, std::less<>> reductions_;
  std::vector<int64_t> block_;   // per tensor: channels of its blocks, if it gets any
  std::vector<TensorId> chain_;  // a forest over tensors, whose roots name the chains
  std::vector<int> gain_;        // per root
};

}  // namespace

LogicalGraph LayOutChannels(LogicalGraph graph, const ChannelLayoutOptions& options) {
  Blocking(graph, options).Run();
  return graph;
}

}  // namespace braid::compiler
