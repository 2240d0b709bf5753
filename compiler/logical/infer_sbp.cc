#include "compiler/logical/infer_sbp.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/logical/signature_choice.h"
#include "graph/op_roles.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

class SbpPass {
 public:
  SbpPass(LogicalGraph& graph, BoxingPlanner& planner, const InferSbpOptions& options)
      : graph_(graph),
        options_(options),
        chooser_(graph, planner, options.explanations, options.layout_seed),
        leaders_(graph.ops().size(), kNone),
        is_served_(graph.ops().size(), false),
        layouts_(graph.tensors().size()),
        made_(graph.tensors().size()),
        wanted_(graph.tensors().size()),
        stays_split_(graph.tensors().size(), false) {}

  absl::Status Run() {
    for (const Op& op : graph_.ops()) {
      CHECK(op.placement.has_value()) << op.name;
      places_.push_back(chooser_.placements().Id(*op.placement));
      if (!IsUpdate(graph_, op)) continue;
      const std::vector<int>& mutated = DefOf(graph_, op).mutates();
      const OpId leader = graph_.producer(op.inputs[mutated[0]]).id;
      for (int index : mutated) {
        const OpId variable = graph_.producer(op.inputs[index]).id;
        leaders_[variable] = leader;
        is_served_[variable] = MaxStaleness(op) > 0;
      }
    }
    for (const Op& op : graph_.ops()) {
      if (IsVariable(graph_, op)) BRAID_RETURN_IF_ERROR(LayOutVariable(op));
    }
    FindWanted();
    for (const Op& op : graph_.ops()) BRAID_RETURN_IF_ERROR(Visit(op.id));
    for (const Op& op : graph_.ops()) {
      if (op.output_sbp.empty() && !op.outputs.empty()) SetSource(op.id, Whole(op));
    }
    return absl::OkStatus();
  }

 private:
  NdSbp Whole(const Op& op) const {
    return NdSbp::Uniform(static_cast<int>(op.placement->hierarchy().size()), sbp::B);
  }

  std::optional<NdSbp> HintOf(const Op& op, size_t output) const {
    return output < op.hints.size() ? op.hints[output] : std::nullopt;
  }

  // Whether readers and variables, which compute nothing, can hold a tensor so.
  absl::Status CheckHeld(const Op& op, size_t output, const NdSbp& sbp) {
    const TensorType& type = graph_.type(op.outputs[output]);
    for (const Sbp& dim : sbp.dims()) {
      if (dim.is_broadcast() || (dim.is_split() && dim.axis < type.shape.rank())) continue;
      std::string legal = "B";
      for (int axis = 0; axis < type.shape.rank(); ++axis)
        absl::StrAppend(&legal, ", S(", axis, ")");
      return absl::InvalidArgumentError(
          absl::StrCat(op.type, " '", op.name, "': the hint ", sbp.ToString(), " cannot hold for ",
                       type.ToString(), "; legal on each dimension: ", legal, " (",
                       op.location.ToString(), ")"));
    }
    return absl::OkStatus();
  }

  // Along the first axis that the devices divide, or else the longest; B if it is too small.
  NdSbp Divided(const Op& op) const {
    const TensorType& type = graph_.type(op.outputs[0]);
    const auto parts = static_cast<int64_t>(op.placement->size());
    const int64_t bytes = type.shape.num_elements() * static_cast<int64_t>(SizeOf(type.dtype));
    const bool is_free = !is_served_[op.id] && !graph_.tensor(op.outputs[0]).mirroring.has_value();
    if (!is_free || parts == 1 || bytes < options_.split_from || bytes == 0) return Whole(op);
    const auto& dims = type.shape.dims();
    auto axis = std::ranges::find_if(dims, [&](int64_t size) { return size % parts == 0; });
    if (axis == dims.end()) axis = std::ranges::max_element(dims);
    if (*axis < parts) return Whole(op);
    return NdSbp::Uniform(static_cast<int>(op.placement->hierarchy().size()),
                          sbp::S(static_cast<int>(axis - dims.begin())));
  }

  // By the job that fixed it, else by hint, else like the variable whose state it is, else B, or
  // divided if options say so.
  absl::Status LayOutVariable(const Op& op) {
    const int place = places_[op.id];
    const OpId leader = leaders_[op.id];
    const auto hint = HintOf(op, 0);
    if (hint.has_value()) BRAID_RETURN_IF_ERROR(CheckHeld(op, 0, *hint));
    auto fixed = options_.fixed.find(op.name);
    NdSbp sbp = Whole(op);
    if (fixed != options_.fixed.end()) {
      sbp = chooser_.Normalize(fixed->second.sbp, place);
      BRAID_RETURN_IF_ERROR(CheckHeld(op, 0, sbp));
      if (hint.has_value() && chooser_.Normalize(*hint, place) != sbp) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variable '", op.name, "': the hint ", hint->ToString(), " differs from ",
            sbp.ToString(), ", which an earlier job fixed; leave the hint out or make them equal (",
            op.location.ToString(), ")"));
      }
    } else if (hint.has_value()) {
      sbp = chooser_.Normalize(*hint, place);
    } else if (leader != kNone && leader != op.id) {
      if (graph_.op(leader).output_sbp.empty())
        BRAID_RETURN_IF_ERROR(LayOutVariable(graph_.op(leader)));
      sbp = graph_.op(leader).output_sbp[0];
      BRAID_RETURN_IF_ERROR(CheckHeld(op, 0, sbp));
    } else if (options_.split_from > 0) {
      sbp = chooser_.Normalize(Divided(op), place);
    }
    SetSource(op.id, sbp);
    stays_split_[op.outputs[0]] = !sbp.all_broadcast();
    return absl::OkStatus();
  }

  // Updates want gradients in the layout of their variable, and elementwise ops of the optimizer
  // hand the wish on. Backward ops do not: there the forward op's layouts rule.
  void FindWanted() {
    for (OpId id = static_cast<OpId>(graph_.ops().size()) - 1; id >= 0; --id) {
      const Op& op = graph_.op(id);
      if (op.inputs.empty()) continue;
      if (IsUpdate(graph_, op)) {
        const TensorId variable = op.inputs[DefOf(graph_, op).mutates()[0]];
        for (TensorId input : op.inputs) {
          if (graph_.type(input).shape == graph_.type(variable).shape) {
            Want(input, places_[id], *layouts_[variable]);
          }
        }
      } else if (op.forward == kNone && op.outputs.size() == 1 &&
                 wanted_[op.outputs[0]].has_value()) {
        for (size_t i = 0; i < op.inputs.size(); ++i) {
          if (IsElementwise(op, i)) Want(op.inputs[i], places_[id], *wanted_[op.outputs[0]]);
        }
      }
    }
  }

  void Want(TensorId tensor, int place, const NdSbp& sbp) {
    if (graph_.tensor(tensor).mirroring.has_value()) return;  // there is no choice
    if (places_[graph_.tensor(tensor).producer] == place) wanted_[tensor] = sbp;
  }

  bool IsElementwise(const Op& op, size_t input) {
    const Shape& shape = graph_.type(op.outputs[0]).shape;
    if (graph_.type(op.inputs[input]).shape != shape) return false;
    const std::vector<SbpSignature>& signatures = chooser_.Signatures(op, places_[op.id]);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const bool keeps = std::ranges::any_of(signatures, [&](const SbpSignature& signature) {
        return signature.inputs[input] == sbp::S(axis) && signature.outputs[0] == sbp::S(axis);
      });
      if (!keeps) return false;
    }
    return true;
  }

  absl::Status Visit(OpId id) {
    const Op& op = graph_.op(id);
    if (IsVariable(graph_, op)) return absl::OkStatus();
    if (HasRole(graph_, op, OpRole::kReader) || HasRole(graph_, op, OpRole::kInput))
      return LayOutReader(id);
    const bool is_hinted = HasHint(op);
    if (op.inputs.empty() && !is_hinted) return absl::OkStatus();  // its first consumer decides
    BRAID_ASSIGN_OR_RETURN(const ChoiceRequest request, RequestFor(op));
    BRAID_ASSIGN_OR_RETURN(NdSignature signature, chooser_.Choose(request));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId input = op.inputs[i];
      if (!layouts_[input].has_value()) DecideSource(input, id, signature.inputs[i]);
      const bool moves = places_[graph_.tensor(input).producer] != places_[id] ||
                         *layouts_[input] != signature.inputs[i];
      const auto transfer = std::make_pair(places_[id], signature.inputs[i]);
      if (moves && std::ranges::find(made_[input], transfer) == made_[input].end()) {
        made_[input].push_back(transfer);
      }
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) layouts_[op.outputs[o]] = signature.outputs[o];
    if (op.inputs.size() == 1 && op.outputs.size() == 1 && !is_hinted &&
        *layouts_[op.inputs[0]] == signature.inputs[0]) {
      stays_split_[op.outputs[0]] = stays_split_[op.inputs[0]];  // a cast or reshape of a weight
    }
    Op& decided = graph_.mutable_op(id);
    decided.input_sbp = std::move(signature.inputs);
    decided.output_sbp = std::move(signature.outputs);
    return absl::OkStatus();
  }

  absl::Status LayOutReader(OpId id) {
    Op& op = graph_.mutable_op(id);
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const auto hint = HintOf(op, o);
      if (hint.has_value()) BRAID_RETURN_IF_ERROR(CheckHeld(op, o, *hint));
      const bool is_scalar = graph_.type(op.outputs[o]).shape.rank() == 0;
      BRAID_ASSIGN_OR_RETURN(const uint64_t mirrored, MirroredDims(op, op.outputs[o]));
      if (mirrored != 0) {  // over all dimensions that have more than one device
        op.output_sbp.push_back(chooser_.Normalize(NdSbp(sbp::M), places_[id]));
        layouts_[op.outputs[o]] = op.output_sbp.back();
        continue;
      }
      const NdSbp sbp = hint.has_value() ? *hint : NdSbp(is_scalar ? sbp::B : sbp::S(0));
      op.output_sbp.push_back(chooser_.Normalize(sbp, places_[id]));
      layouts_[op.outputs[o]] = op.output_sbp.back();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ChoiceRequest> RequestFor(const Op& op) {
    const int place = places_[op.id];
    ChoiceRequest request;
    request.op = &op;
    request.placement = place;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId tensor = op.inputs[i];
      InputState input;
      input.type = graph_.type(tensor);
      input.micro_batch = MicroBatchLayoutOf(graph_, tensor);
      input.placement = places_[graph_.tensor(tensor).producer];
      BRAID_ASSIGN_OR_RETURN(input.mirrored, MirroredDims(op, tensor));
      input.sbp = layouts_[tensor];
      for (const auto& [at, sbp] : made_[tensor]) {
        if (at == place) input.ready.push_back(sbp);
      }
      if (wanted_[tensor].has_value() && input.placement == place) {
        input.ready.push_back(*wanted_[tensor]);
      }
      input.preferred = ForwardLayout(op, tensor);
      if (RepeatsForward(op)) {
        input.required = graph_.op(op.forward).input_sbp[request.inputs.size()];
      }
      if (!input.preferred.has_value() && stays_split_[tensor] && input.placement == place) {
        input.preferred = layouts_[tensor];
      }
      // A worker takes all of what an asynchronous server has.
      if (is_served_[graph_.tensor(tensor).producer]) input.required = Whole(op);
      request.inputs.push_back(std::move(input));
    }
    for (int index : DefOf(graph_, op).mutates()) {
      request.inputs[index].required = layouts_[op.inputs[index]];
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      OutputState output;
      if (auto hint = HintOf(op, o)) {
        // Also on dimensions of one device: a program that is wrong on eight is wrong on one.
        const int rank = static_cast<int>(op.placement->hierarchy().size());
        output.hint = hint->rank() == 1 ? NdSbp::Uniform(rank, (*hint)[0]) : *hint;
        if (output.hint->rank() != rank) {
          return chooser_.HintError(
              op, absl::StrCat("the hint ", hint->ToString(), " on ", rank, " dimensions"), place);
        }
      }
      output.wanted = wanted_[op.outputs[o]];
      BRAID_ASSIGN_OR_RETURN(output.mirrored, MirroredDims(op, op.outputs[o]));
      if (RepeatsForward(op)) output.hint = graph_.op(op.forward).output_sbp[o];
      request.outputs.push_back(std::move(output));
    }
    return request;
  }

  // On which dimensions of the op's placement an operand is M, as a bit each.
  absl::StatusOr<uint64_t> MirroredDims(const Op& op, TensorId tensor) {
    const std::optional<Mirroring>& mirroring = graph_.tensor(tensor).mirroring;
    if (!mirroring.has_value()) return 0;
    const std::vector<int64_t>& hierarchy = op.placement->hierarchy();
    uint64_t dims = 0;
    int64_t parts = 1;
    for (int dim = 0; dim < static_cast<int>(hierarchy.size()); ++dim) {
      if (!mirroring->IsOver(dim)) continue;
      parts *= hierarchy[dim];
      if (hierarchy[dim] > 1) dims |= uint64_t{1} << dim;
    }
    const int made_at = places_[graph_.tensor(tensor).producer];
    if (made_at == places_[op.id]) {
      if (parts == mirroring->parts) return dims;
      return absl::InvalidArgumentError(absl::StrCat(
          op.type, " '", op.name, "': an operand is mirrored (", mirroring->ToString(),
          "), and its placement, ", op.placement->ToString(), ", has ", parts,
          " devices to mirror over; job.On stands around job.Mirrored, not inside it (",
          op.location.ToString(), ")"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        op.type, " '", op.name, "': it is placed on ", op.placement->ToString(),
        ", and an operand is mirrored on ", chooser_.placements()[made_at].ToString(), " (",
        mirroring->ToString(),
        "); a mirrored value stays where it was made: SumMirrored, MeanMirrored, Stack or FromRank "
        "make one that can be moved (",
        op.location.ToString(), ")"));
  }

  // How the forward op of a gradient's op uses a tensor, if it does.
  std::optional<NdSbp> ForwardLayout(const Op& op, TensorId tensor) const {
    if (op.forward == kNone || places_[op.forward] != places_[op.id]) return std::nullopt;
    const Op& forward = graph_.op(op.forward);
    const TensorId first = FirstOf(tensor);
    for (size_t i = 0; i < forward.input_sbp.size(); ++i) {
      if (forward.inputs[i] == first) return forward.input_sbp[i];
    }
    for (size_t o = 0; o < forward.output_sbp.size(); ++o) {
      if (forward.outputs[o] == first) return forward.output_sbp[o];
    }
    return std::nullopt;
  }

  // Whether the op has to give the same bits as another one before it.
  bool RepeatsForward(const Op& op) const {
    return op.is_again && places_[op.forward] == places_[op.id] &&
           graph_.op(op.forward).input_sbp.size() == op.inputs.size();
  }

  // Of a value that is computed again: the one that the forward pass computed.
  TensorId FirstOf(TensorId tensor) const {
    const Op& producer = graph_.producer(tensor);
    if (producer.is_again) {
      return graph_.op(producer.forward).outputs[graph_.tensor(tensor).output];
    }
    return HasRole(graph_, producer, OpRole::kAfter) ? producer.inputs[0] : tensor;
  }

  // A source gets what its first consumer wants, if it can make it at the same place; else B.
  void DecideSource(TensorId tensor, OpId consumer, const NdSbp& sbp) {
    const Op& source = graph_.producer(tensor);
    const int place = places_[source.id];
    bool can = place == places_[consumer];
    for (int d = 0; can && d < sbp.rank(); ++d) {
      can = !sbp[d].is_partial() &&
            std::ranges::any_of(chooser_.Signatures(source, place), [&](const auto& signature) {
              return signature.outputs[graph_.tensor(tensor).output] == sbp[d];
            });
    }
    SetSource(source.id, can ? sbp : Whole(source));
  }

  void SetSource(OpId id, const NdSbp& sbp) {
    Op& op = graph_.mutable_op(id);
    op.output_sbp.assign(op.outputs.size(), sbp);
    for (TensorId output : op.outputs) layouts_[output] = sbp;
  }

  LogicalGraph& graph_;
  const InferSbpOptions& options_;
  SignatureChooser chooser_;
  std::vector<int> places_;      // per op: the placement's id
  std::vector<OpId> leaders_;    // per op: of a variable that an update writes: the first it writes
  std::vector<bool> is_served_;  // per op: it is a variable of an asynchronous server
  std::vector<std::optional<NdSbp>> layouts_;  // per tensor; none: a source not decided yet
  std::vector<std::vector<std::pair<int, NdSbp>>> made_;  // per tensor: layouts it is boxed to
  std::vector<std::optional<NdSbp>> wanted_;  // per tensor, where it is made: what updates need
  std::vector<bool> stays_split_;             // per tensor: a split variable, or made of one
};

}  // namespace

absl::StatusOr<LogicalGraph> InferSbp(LogicalGraph graph, BoxingPlanner& planner,
                                      const InferSbpOptions& options) {
  BRAID_RETURN_IF_ERROR(SbpPass(graph, planner, options).Run());
  return graph;
}

}  // namespace braid::compiler
