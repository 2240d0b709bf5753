#include "compiler/logical/micro_batch.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using Use = std::pair<OpId, int>;  // (consumer, input index)

// How a tensor exists over micro-batches.
struct PieceLayout {
  bool cut = false;  // a value per act, laid out as `sbp` over the acts; else one whole value
  Sbp sbp = sbp::B;
  bool late = false;  // whole, but only once all acts are done
};

class MicroBatchPass {
 public:
  MicroBatchPass(LogicalGraph& graph, int m)
      : graph_(graph), m_(m), layouts_(graph.tensors().size()) {}

  absl::Status Run() {
    // Appending does not disturb the ops that are there: all ids stay until the sort at the end.
    const int count = static_cast<int>(graph_.ops().size());
    for (OpId id = 0; id < count; ++id) BRAID_RETURN_IF_ERROR(Visit(id));
    BRAID_RETURN_IF_ERROR(BuildPieces());
    BRAID_RETURN_IF_ERROR(graph_.status());
    // A sum takes each addend as soon as it is there: later, all addends would be there at once.
    std::vector<OpId> keys(graph_.ops().size());
    std::iota(keys.begin(), keys.end(), OpId{0});
    for (const auto& [addend, sum] : accumulated_) {
      keys[graph_.tensor(sum).producer] = graph_.tensor(addend).producer;
    }
    graph_.SortTopologically(keys);
    return absl::OkStatus();
  }

 private:
  absl::Status Visit(OpId id) {
    const Op& op = graph_.op(id);
    if (HasRole(graph_, op, OpRole::kReader) || HasRole(graph_, op, OpRole::kInput))
      return CutSource(id);
    std::vector<int> cut;
    bool late = false;
    for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
      const PieceLayout& layout = layouts_[op.inputs[i]];
      if (layout.cut) cut.push_back(i);
      late |= layout.late;
    }
    if (cut.empty()) {
      SetWhole(op, late);
      return absl::OkStatus();
    }
    if (HasRole(graph_, op, OpRole::kFetch) && layouts_[op.inputs[0]].sbp.is_split()) {
      SetCut(graph_.mutable_op(id), {{layouts_[op.inputs[0]].sbp}, {}});
      return absl::OkStatus();
    }
    const bool are_addends =
        std::ranges::all_of(cut, [&](int i) { return layouts_[op.inputs[i]].sbp == sbp::P; });
    if (!HasRole(graph_, op, OpRole::kFetch)) {
      // Addends that meet what is late anyway are added up once, for the whole step.
      if (!(late && are_addends) && SetCutAs(id, Addends::kStay)) return absl::OkStatus();
      if (!are_addends && SetCutAs(id, Addends::kAreSummed)) return absl::OkStatus();
    }
    for (int i : cut) {
      if (layouts_[op.inputs[i]].sbp != sbp::P) return NeedsWholeBatch(op, i);
    }
    SumAddends(id);
    SetWhole(graph_.op(id), /*late=*/true);
    return absl::OkStatus();
  }

  // What becomes of an op's inputs that are addends, one per act.
  enum class Addends { kStay, kAreSummed };

  // Lets the op act on parts if a signature allows it.
  bool SetCutAs(OpId id, Addends addends) {
    const std::optional<SbpSignature> signature = ChooseSignature(graph_.op(id), addends);
    if (!signature.has_value()) return false;
    if (addends == Addends::kAreSummed) SumAddends(id);
    const Op& op = graph_.op(id);
    for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
      if (!layouts_[op.inputs[i]].cut && signature->inputs[i].is_split()) {
        RequestPiece(op.inputs[i], signature->inputs[i].axis, {id, i});
      }
    }
    SetCut(graph_.mutable_op(id), *signature);
    return true;
  }

  void SumAddends(OpId id) {
    for (size_t i = 0; i < graph_.op(id).inputs.size(); ++i) {
      const TensorId input = graph_.op(id).inputs[i];
      if (!layouts_[input].cut || layouts_[input].sbp != sbp::P) continue;
      const TensorId sum = Accumulated(input);
      graph_.mutable_op(id).inputs[i] = sum;
    }
  }

  absl::Status CutSource(OpId id) {
    Op& op = graph_.mutable_op(id);
    if (HasRole(graph_, op, OpRole::kInput) && graph_.type(op.outputs[0]).shape.rank() == 0) {
      SetWhole(op, /*late=*/false);
      return absl::OkStatus();
    }
    for (TensorId output : op.outputs) {
      const Shape& shape = graph_.type(output).shape;
      if (shape.rank() > 0 && shape[0] % m_ == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          op.type, " '", op.name, "': a batch of ", shape.rank() > 0 ? shape[0] : 1, " (",
          graph_.type(output).ToString(), ") cannot be cut into micro_batches = ", m_,
          " equal parts; make the batch a multiple of ", m_, " (", op.location.ToString(), ")"));
    }
    SetCut(op, {{}, std::vector<Sbp>(op.outputs.size(), sbp::S(0))});
    return absl::OkStatus();
  }

  void SetWhole(const Op& op, bool late) {
    for (TensorId output : op.outputs) layouts_[output] = {false, sbp::B, late};
  }

  void SetCut(Op& op, SbpSignature signature) {
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      layouts_[op.outputs[i]] = {true, signature.outputs[i], false};
    }
    op.acts_per_step = m_;
    op.input_micro_batch_sbp = std::move(signature.inputs);
    op.output_micro_batch_sbp = std::move(signature.outputs);
  }

  std::vector<SbpSignature> Signatures(const Op& op) const {
    std::vector<TensorType> inputs, outputs;
    for (TensorId id : op.inputs) inputs.push_back(graph_.type(id));
    for (TensorId id : op.outputs) outputs.push_back(graph_.type(id));
    // A reshape's axes that can be cut into micro-batches and then over the devices come first.
    // Where there is none, each device reshapes whole micro-batches.
    const int64_t devices = op.placement.has_value() ? op.placement->size() : 1;
    const OpContext context{op.attrs, inputs, outputs};
    const OpDef& def = DefOf(graph_, op);
    std::vector<SbpSignature> signatures = def.LegalMicroBatchSignatures(context, m_ * devices);
    if (devices == 1) return signatures;
    for (SbpSignature& other : def.LegalMicroBatchSignatures(context, m_)) {
      if (std::ranges::find(signatures, other) == signatures.end()) {
        signatures.push_back(std::move(other));
      }
    }
    return signatures;
  }

  bool Divides(TensorId tensor, const Sbp& sbp) const {
    return !sbp.is_split() || graph_.type(tensor).shape[sbp.axis] % m_ == 0;
  }
  bool DividesAll(const Op& op, const SbpSignature& signature) const {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!Divides(op.inputs[i], signature.inputs[i])) return false;
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (!Divides(op.outputs[i], signature.outputs[i])) return false;
    }
    return true;
  }

  // The first signature that takes the inputs as they are; else the one that asks for the fewest
  // pieces of whole values.
  std::optional<SbpSignature> ChooseSignature(const Op& op, Addends addends) const {
    std::optional<SbpSignature> best;
    int best_pieces = 0;
    for (const SbpSignature& signature : Signatures(op)) {
      int pieces = 0;
      bool fits = DividesAll(op, signature);
      for (size_t i = 0; fits && i < op.inputs.size(); ++i) {
        const PieceLayout& layout = layouts_[op.inputs[i]];
        const Sbp& wanted = signature.inputs[i];
        if (layout.cut && layout.sbp == sbp::P && addends == Addends::kAreSummed) {
          fits = wanted.is_broadcast();
        } else if (layout.cut) {
          fits = wanted == layout.sbp;
        } else if (wanted.is_split()) {
          fits = HasPieces(op.inputs[i], wanted.axis);
          ++pieces;
        } else {
          fits = wanted.is_broadcast();
        }
      }
      if (!fits || (best.has_value() && pieces >= best_pieces)) continue;
      best = signature;
      best_pieces = pieces;
      if (pieces == 0) break;
    }
    return best;
  }

  // How the producer of a whole tensor can compute it in pieces along `axis`: a signature that
  // takes its inputs whole where possible.
  std::optional<SbpSignature> PieceSignature(TensorId tensor, int axis) const {
    const Op& op = graph_.producer(tensor);
    if (DefOf(graph_, op).external() || op.acts_per_step > 1) return std::nullopt;
    const int output = graph_.tensor(tensor).output;
    std::optional<SbpSignature> in_pieces;
    for (const SbpSignature& signature : Signatures(op)) {
      if (signature.outputs[output] != sbp::S(axis) || !DividesAll(op, signature)) continue;
      bool is_whole = true, fits = true;
      for (size_t i = 0; fits && i < op.inputs.size(); ++i) {
        if (signature.inputs[i].is_broadcast()) continue;
        is_whole = false;
        fits = signature.inputs[i].is_split() && HasPieces(op.inputs[i], signature.inputs[i].axis);
      }
      if (fits && is_whole) return signature;
      if (fits && !in_pieces.has_value()) in_pieces = signature;
    }
    return in_pieces;
  }

  bool HasPieces(TensorId tensor, int axis) const {
    const auto key = std::make_pair(tensor, axis);
    auto it = has_pieces_.find(key);
    if (it == has_pieces_.end()) {
      it = has_pieces_.emplace(key, PieceSignature(tensor, axis).has_value()).first;
    }
    return it->second;
  }

  void RequestPiece(TensorId tensor, int axis, Use use) { pieces_[{tensor, axis}].push_back(use); }

  // Producers of requested pieces act m times a step themselves, or, where their whole value is
  // read too, as a copy. Last ops first: a copy asks its own inputs for pieces.
  absl::Status BuildPieces() {
    while (!pieces_.empty()) {
      // The latest producer; all its pieces together.
      OpId id = kNone;
      for (const auto& [key, uses] : pieces_) id = std::max(id, graph_.tensor(key.first).producer);
      std::map<std::pair<TensorId, int>, std::vector<Use>> wanted;
      for (auto it = pieces_.begin(); it != pieces_.end();) {
        const bool is_of_op = graph_.tensor(it->first.first).producer == id;
        if (is_of_op) wanted.insert(*it);
        it = is_of_op ? pieces_.erase(it) : std::next(it);
      }
      BRAID_RETURN_IF_ERROR(BuildPiecesOf(id, wanted));
    }
    return absl::OkStatus();
  }

  absl::Status BuildPiecesOf(OpId id,
                             const std::map<std::pair<TensorId, int>, std::vector<Use>>& wanted) {
    size_t redirected = 0;
    for (const auto& [key, uses] : wanted) redirected += uses.size();
    const bool in_place = wanted.size() == 1 && redirected == CountUses(id);
    for (const auto& [key, uses] : wanted) {
      const auto [tensor, axis] = key;
      const SbpSignature signature = *PieceSignature(tensor, axis);
      OpId piece = id;
      if (!in_place) {
        if (DefOf(graph_, graph_.op(id)).random()) {
          const Op& op = graph_.op(id);
          return absl::InvalidArgumentError(
              absl::StrCat(op.type, " '", op.name, "' is read whole and in micro_batches = ", m_,
                           " parts; record it once for each use (", op.location.ToString(), ")"));
        }
        piece = Copy(id);
        BRAID_RETURN_IF_ERROR(graph_.status());
      }
      const int output = graph_.tensor(tensor).output;
      for (auto [consumer, input] : uses) {
        graph_.mutable_op(consumer).inputs[input] = graph_.op(piece).outputs[output];
      }
      for (size_t i = 0; i < signature.inputs.size(); ++i) {
        if (!signature.inputs[i].is_split()) continue;
        RequestPiece(graph_.op(piece).inputs[i], signature.inputs[i].axis,
                     {piece, static_cast<int>(i)});
      }
      layouts_.resize(graph_.tensors().size());
      SetCut(graph_.mutable_op(piece), signature);
    }
    return absl::OkStatus();
  }

  size_t CountUses(OpId id) const {
    const std::vector<TensorId>& outputs = graph_.op(id).outputs;
    size_t uses = 0;
    for (const Op& op : graph_.ops()) {
      for (TensorId input : op.inputs) uses += std::ranges::count(outputs, input);
    }
    return uses;
  }

  OpId Copy(OpId id) {
    const Op original = graph_.op(id);
    std::vector<Tensor> inputs;
    for (TensorId input : original.inputs) inputs.push_back(Tensor(&graph_, input));
    const Tensor tensor =
        AppendLike(original, original.type, inputs, original.name + ".pieces", original.attrs);
    if (!tensor.valid()) return id;
    return graph_.tensor(tensor.id()).producer;
  }

  // Appends an op at another's place and line; returns its first output.
  Tensor AppendLike(const Op& model, const std::string& type, const std::vector<Tensor>& inputs,
                    const std::string& name, const Attrs& attrs) {
    LogicalGraph::AppendOptions options;
    options.name = name;
    options.attrs = attrs;
    options.location = model.location;
    options.placement = model.placement;
    graph_.set_current_forward(model.forward);
    const Tensor tensor = graph_.Append(type, inputs, std::move(options))[0];
    graph_.set_current_forward(kNone);
    return tensor;
  }

  TensorId Accumulated(TensorId tensor) {
    auto it = accumulated_.find(tensor);
    if (it != accumulated_.end()) return it->second;
    const Op producer = graph_.producer(tensor);
    const Tensor sum = AppendLike(producer, "accumulate", {Tensor(&graph_, tensor)},
                                  producer.name + ".accumulate", {});
    CHECK(sum.valid()) << graph_.status();
    Op& op = graph_.mutable_op(graph_.tensor(sum.id()).producer);
    op.acts_per_step = m_;
    op.input_micro_batch_sbp = {sbp::P};
    op.output_micro_batch_sbp = {sbp::B};
    layouts_.resize(graph_.tensors().size());
    layouts_[sum.id()] = {false, sbp::B, true};
    return accumulated_[tensor] = sum.id();
  }

  absl::Status NeedsWholeBatch(const Op& op, int input) const {
    const TensorId tensor = op.inputs[input];
    return absl::InvalidArgumentError(
        absl::StrCat(op.type, " '", op.name, "' needs the whole batch of '",
                     graph_.producer(tensor).name, "' (", graph_.type(tensor).ToString(),
                     "), of which micro_batches = ", m_, " gives it one part at a time; ",
                     RemedyOf(op, graph_.type(tensor).shape), " (", op.location.ToString(), ")"));
  }
  std::string RemedyOf(const Op& op, const Shape& shape) const {
    const std::optional<Mirroring> mirroring = Mirroring::Of(op.attrs);
    if (mirroring && shape.rank() > 0 && shape[0] % (mirroring->parts * m_) != 0) {
      return absl::StrCat("each of ", mirroring->parts, " devices has ",
                          shape[0] / mirroring->parts, " of its ", shape[0],
                          " rows, which must be a multiple of micro_batches");
    }
    return "set micro_batches to 1, or compute it from each part alone";
  }

  LogicalGraph& graph_;
  const int m_;
  std::vector<PieceLayout> layouts_;  // per tensor
  std::map<TensorId, TensorId> accumulated_;
  std::map<std::pair<TensorId, int>, std::vector<Use>> pieces_;  // asked for, by (tensor, axis)
  mutable std::map<std::pair<TensorId, int>, bool> has_pieces_;
};

}  // namespace

absl::StatusOr<LogicalGraph> MicroBatch(LogicalGraph graph) {
  if (graph.minimize().empty()) return graph;
  const int m = graph.minimize()[0].micro_batches;
  for (const MinimizeRequest& request : graph.minimize()) {
    if (request.micro_batches != m) {
      return absl::InvalidArgumentError(
          absl::StrCat("minimize asks for micro_batches = ", request.micro_batches,
                       ", but another of the same job for ", m, "; a step has one number (",
                       request.location.ToString(), ")"));
    }
  }
  if (m == 1) return graph;
  BRAID_RETURN_IF_ERROR(MicroBatchPass(graph, m).Run());
  const std::vector<Op>& ops = graph.ops();
  if (std::ranges::none_of(ops, [](const Op& op) { return op.acts_per_step > 1; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("minimize asks for micro_batches = ", m,
                     ", but nothing that leads to its loss has a batch to be cut: the job reads no "
                     "dataset and no input but scalars; set micro_batches to 1, or read the data (",
                     graph.minimize()[0].location.ToString(), ")"));
  }
  return graph;
}

}  // namespace braid::compiler
