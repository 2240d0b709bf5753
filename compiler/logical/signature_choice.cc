#include "compiler/logical/signature_choice.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/op_roles.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// Above this many products, each dimension keeps its cheapest signatures only.
constexpr double kMaxProducts = 4096;
// Candidates whose estimate is above this many times the least are not priced by boxing.
constexpr double kPricedFactor = 2;
// Nor are any on more devices than this: there the table is as good, and pricing is slow.
constexpr int kMaxPricedDevices = 64;

std::string Join(const std::vector<NdSbp>& operands) {
  return absl::StrJoin(operands, ", ", [](std::string* out, const NdSbp& sbp) {
    absl::StrAppend(out, sbp.ToString());
  });
}

// Sums and maxima over different dimensions do not commute.
bool IsMixed(const NdSbp& sbp) {
  std::optional<Sbp::Kind> kind;
  for (const Sbp& dim : sbp.dims()) {
    if (!dim.is_partial()) continue;
    if (kind.has_value() && *kind != dim.kind) return true;
    kind = dim.kind;
  }
  return false;
}

// Maxima may be passed on, but are never made of values that are whole, split or sums: the copies
// that a split leaves out would have to be minus infinity.
bool MakesExtremes(const InputState& input, int placement, const NdSbp& to) {
  for (int d = 0; d < to.rank(); ++d) {
    if (!to[d].is_partial() || to[d] == sbp::P) continue;
    const bool has_them =
        input.placement == placement && input.sbp.has_value() && (*input.sbp)[d] == to[d];
    if (!has_them) return true;
  }
  return false;
}

// Bytes moved on one dimension of `p` parts, in units of the tensor: the table of the algebra.
double UnitsMoved(const Sbp& from, const Sbp& to, double p) {
  if (from == to || from.is_broadcast()) return 0;
  if (from.is_partial() && to.is_partial()) return 2 * (p - 1);  // summed, then one maximum of it
  if (to.is_partial()) return 0;
  if (from.is_partial()) return to.is_broadcast() ? 2 * (p - 1) : p - 1;
  return to.is_broadcast() ? p - 1 : (p - 1) / p;
}

// Bytes that pass a device, by the table alone: dimension by dimension where the placements are
// equal, as if they were disjoint otherwise.
double EstimateBytes(const TensorType& type, const Placement& source, const Placement& destination,
                     const NdSbp& from, const NdSbp& to) {
  const double whole = static_cast<double>(type.shape.num_elements()) * SizeOf(type.dtype);
  const std::vector<int64_t>& hierarchy = destination.hierarchy();
  double bytes = 0;
  if (source == destination) {
    for (int d = 0; d < from.rank(); ++d) {
      double local = whole;
      for (int e = 0; e < from.rank(); ++e) {
        const bool is_split = e < d ? to[e].is_split() : from[e].is_split();
        if (e != d && is_split) local /= static_cast<double>(hierarchy[e]);
      }
      const auto parts = static_cast<double>(hierarchy[d]);
      bytes += UnitsMoved(from[d], to[d], parts) * local / parts;
    }
    return bytes;
  }
  double copies = 1, addends = 1, parts = 1;
  for (int d = 0; d < to.rank(); ++d) {
    if (to[d].is_broadcast()) copies *= static_cast<double>(hierarchy[d]);
  }
  for (int d = 0; d < from.rank(); ++d) {
    if (from[d].is_partial()) addends *= static_cast<double>(source.hierarchy()[d]);
    if (!from[d].is_broadcast()) parts *= static_cast<double>(source.hierarchy()[d]);
  }
  return whole * (copies + addends - 1) / std::min<double>(parts, destination.size());
}

bool IsLess(double a, double b) { return b - a > 1e-15 + 1e-9 * std::abs(a); }  // not by rounding

// What holds on so many devices in every act. An axis that both devices and micro-batches split has
// to go into equal parts for all of them.
std::vector<SbpSignature> LegalInActs(const OpDef& def, const Op& op, const OpContext& context,
                                      int64_t devices) {
  std::vector<SbpSignature> legal = def.LegalSignatures(context, devices);
  if (op.acts_per_step == 1) return legal;
  const std::vector<SbpSignature> of_all = def.LegalSignatures(context, devices * op.acts_per_step);
  const auto is_split_twice = [](const std::vector<Sbp>& sbp, const std::vector<Sbp>& micro_batch) {
    for (size_t i = 0; i < sbp.size(); ++i) {
      if (sbp[i].is_split() && sbp[i] == micro_batch[i]) return true;
    }
    return false;
  };
  std::erase_if(legal, [&](const SbpSignature& signature) {
    return (is_split_twice(signature.inputs, op.input_micro_batch_sbp) ||
            is_split_twice(signature.outputs, op.output_micro_batch_sbp)) &&
           std::ranges::find(of_all, signature) == of_all.end();
  });
  return legal;
}

}  // namespace

std::string NdSignature::ToString() const {
  return absl::StrCat("(", Join(inputs), ")->(", Join(outputs), ")");
}

SignatureChooser::SignatureChooser(const LogicalGraph& graph, BoxingPlanner& planner,
                                   std::map<std::string, std::string>* explanations,
                                   std::optional<uint64_t> layout_seed)
    : graph_(graph), planner_(planner), explanations_(explanations), layout_seed_(layout_seed) {}

int SignatureChooser::ClassOf(const Op& op, int placement) {
  const auto devices = static_cast<int64_t>(placements_[placement].size());
  const std::string& kind = placements_[placement].device_type();
  std::string key = absl::StrCat(op.type, "{", op.attrs.ToString(), "}", devices, kind);
  if (op.acts_per_step > 1) {
    absl::StrAppend(&key, "x", op.acts_per_step);
    for (const auto* operands : {&op.input_micro_batch_sbp, &op.output_micro_batch_sbp}) {
      for (const Sbp& sbp : *operands) absl::StrAppend(&key, sbp.ToString());
    }
  }
  std::vector<TensorType> inputs, outputs;
  for (TensorId id : op.inputs) {
    inputs.push_back(graph_.type(id));
    absl::StrAppend(&key, ",", Id(inputs.back()));
  }
  for (TensorId id : op.outputs) {
    outputs.push_back(graph_.type(id));
    absl::StrAppend(&key, ";", Id(outputs.back()));
  }
  bool is_mirrored = false;
  for (const auto* operands : {&op.inputs, &op.outputs}) {
    for (TensorId id : *operands) {
      const std::optional<Mirroring>& mirroring = graph_.tensor(id).mirroring;
      absl::StrAppend(&key, mirroring.has_value() ? absl::StrCat("M", mirroring->dims) : "");
      is_mirrored = is_mirrored || mirroring.has_value();
    }
  }
  auto [it, is_new] = class_ids_.try_emplace(std::move(key), static_cast<int>(classes_.size()));
  if (is_new) {
    const OpContext context{op.attrs, inputs, outputs};
    const OpDef& def = DefOf(graph_, op);
    const double rate = planner_.machine().FlopsPerSecond(kind, ProductTypeOf(graph_, op));
    classes_.push_back(
        {LegalInActs(def, op, context, devices), def.CountFlops(context) / rate, op.acts_per_step});
    if (is_mirrored) classes_.back().signatures.push_back(def.MirroredSignature(context));
    CHECK(!classes_.back().signatures.empty()) << op.type;
  }
  return it->second;
}

const std::vector<SbpSignature>& SignatureChooser::Signatures(const Op& op, int placement) {
  return classes_[ClassOf(op, placement)].signatures;
}

NdSbp SignatureChooser::Normalize(const NdSbp& sbp, int placement) const {
  const std::vector<int64_t>& hierarchy = placements_[placement].hierarchy();
  const int rank = static_cast<int>(hierarchy.size());
  NdSbp result = sbp.rank() == 1 ? NdSbp::Uniform(rank, sbp[0]) : sbp;
  CHECK_EQ(result.rank(), rank);
  for (int d = 0; d < rank; ++d) {
    if (hierarchy[d] == 1) result[d] = sbp::B;
  }
  return result;
}

absl::Status SignatureChooser::HintError(const Op& op, const std::string& hint, int placement) {
  std::vector<std::string> legal;
  for (const SbpSignature& signature : Signatures(op, placement)) {
    legal.push_back(signature.ToString());
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op.type, " '", op.name, "': ", hint, " cannot hold; legal on each dimension: ",
                   absl::StrJoin(legal, ", "), " (", op.location.ToString(), ")"));
}

absl::StatusOr<NdSignature> SignatureChooser::Choose(const ChoiceRequest& request) {
  const int class_id = ClassOf(*request.op, request.placement);
  std::vector<int> key = KeyOf(request, class_id);
  if (explanations_ == nullptr && !layout_seed_.has_value()) {
    if (auto it = choices_.find(key); it != choices_.end()) return it->second;
  }
  const OpClass& op_class = classes_[class_id];
  BRAID_ASSIGN_OR_RETURN(Candidates candidates, Filter(request, op_class));
  KeepCheapest(request, op_class, candidates);
  BRAID_ASSIGN_OR_RETURN(NdSignature picked, Pick(request, op_class, candidates));
  choices_.insert_or_assign(std::move(key), picked);
  return picked;
}

absl::StatusOr<SignatureChooser::Candidates> SignatureChooser::Filter(const ChoiceRequest& request,
                                                                      const OpClass& op_class) {
  const std::vector<SbpSignature>& signatures = op_class.signatures;
  const std::vector<int64_t>& hierarchy = placements_[request.placement].hierarchy();
  Candidates candidates;
  for (int d = 0; d < static_cast<int>(hierarchy.size()); ++d) {
    std::vector<int> kept;
    for (int s = 0; s < static_cast<int>(signatures.size()); ++s) kept.push_back(s);
    const auto with = [&](const auto& holds) {
      std::vector<int> result;
      for (int s : kept) {
        if (holds(signatures[s])) result.push_back(s);
      }
      return result;
    };
    for (size_t o = 0; o < request.outputs.size(); ++o) {
      const auto& hint = request.outputs[o].hint;
      if (!hint.has_value()) continue;
      kept = with([&](const SbpSignature& s) { return s.outputs[o] == (*hint)[d]; });
      if (kept.empty()) {
        return HintError(*request.op, absl::StrCat("the hint ", hint->ToString(), " of output ", o),
                         request.placement);
      }
    }
    if (hierarchy[d] == 1) {
      candidates.push_back({0});
      continue;
    }
    kept = with([&](const SbpSignature& s) {
      const auto stands_where_it_must = [&](const std::vector<Sbp>& operands, const auto& states) {
        for (size_t i = 0; i < operands.size(); ++i) {
          if (operands[i].is_mirrored() != ((states[i].mirrored >> d & 1) != 0)) return false;
        }
        return true;
      };
      return stands_where_it_must(s.inputs, request.inputs) &&
             stands_where_it_must(s.outputs, request.outputs);
    });
    if (kept.empty()) {
      return HintError(*request.op,
                       absl::StrCat("a hint that is not M on dimension ", d,
                                    " of the placement, where each device has a value of its own,"),
                       request.placement);
    }
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      const auto& required = request.inputs[i].required;
      if (!required.has_value()) continue;
      kept = with([&](const SbpSignature& s) { return s.inputs[i] == (*required)[d]; });
      if (kept.empty()) {
        return HintError(*request.op,
                         absl::StrCat("the layout ", required->ToString(), " of the variable '",
                                      graph_.producer(request.op->inputs[i]).name, "'"),
                         request.placement);
      }
    }
    if (layout_seed_.has_value()) {
      candidates.push_back(std::move(kept));
      continue;
    }
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      const auto& preferred = request.inputs[i].preferred;
      if (!preferred.has_value() || (*preferred)[d].is_partial()) continue;
      auto fewer = with([&](const SbpSignature& s) { return s.inputs[i] == (*preferred)[d]; });
      if (!fewer.empty()) kept = std::move(fewer);
    }
    const bool is_whole = std::ranges::all_of(request.inputs, [&](const InputState& input) {
      return input.placement == request.placement &&
             (!input.sbp.has_value() || (*input.sbp)[d].is_broadcast());
    });
    auto whole = with([](const SbpSignature& s) {
      const auto is_broadcast = [](const Sbp& sbp) { return sbp.is_broadcast(); };
      return std::ranges::all_of(s.inputs, is_broadcast) &&
             std::ranges::all_of(s.outputs, is_broadcast);
    });
    if (is_whole && !whole.empty()) kept = std::move(whole);
    candidates.push_back(std::move(kept));
  }
  return candidates;
}

void SignatureChooser::KeepCheapest(const ChoiceRequest& request, const OpClass& op_class,
                                    Candidates& candidates) {
  double products = 1;
  for (const auto& list : candidates) products *= static_cast<double>(list.size());
  if (products <= kMaxProducts) return;
  const std::vector<int64_t>& hierarchy = placements_[request.placement].hierarchy();
  const auto limit = static_cast<size_t>(
      std::max(2.0, std::pow(kMaxProducts, 1.0 / static_cast<double>(candidates.size()))));
  for (int d = 0; d < static_cast<int>(candidates.size()); ++d) {
    std::vector<int>& list = candidates[d];
    if (list.size() <= limit) continue;
    std::vector<std::pair<double, int>> ranked;  // ties stay in list order
    for (int s : list) {
      double bytes = 0;
      for (size_t i = 0; i < request.inputs.size(); ++i) {
        const InputState& input = request.inputs[i];
        if (!input.sbp.has_value()) continue;
        const bool same_rank = input.sbp->rank() == static_cast<int>(hierarchy.size());
        bytes += static_cast<double>(input.type.shape.num_elements()) * SizeOf(input.type.dtype) *
                 UnitsMoved(same_rank ? (*input.sbp)[d] : sbp::B, op_class.signatures[s].inputs[i],
                            static_cast<double>(hierarchy[d]));
      }
      ranked.push_back({bytes, s});
    }
    std::ranges::sort(ranked);
    ranked.resize(limit);
    list.clear();
    for (const auto& [bytes, s] : ranked) list.push_back(s);
    std::ranges::sort(list);
  }
}

SignatureChooser::Estimates SignatureChooser::EstimateAll(const ChoiceRequest& request,
                                                          const OpClass& op_class,
                                                          const Candidates& candidates) {
  const size_t rank = candidates.size();
  const std::vector<SbpSignature>& signatures = op_class.signatures;
  std::vector<size_t> at(rank, 0);
  NdSignature candidate;
  candidate.inputs.assign(request.inputs.size(), NdSbp::Uniform(static_cast<int>(rank), sbp::B));
  candidate.outputs.assign(request.outputs.size(), NdSbp::Uniform(static_cast<int>(rank), sbp::B));
  Estimates estimates;
  for (bool more = true; more;) {
    for (size_t d = 0; d < rank; ++d) {
      const SbpSignature& signature = signatures[candidates[d][at[d]]];
      const int dim = static_cast<int>(d);
      for (size_t i = 0; i < candidate.inputs.size(); ++i) {
        candidate.inputs[i][dim] = signature.inputs[i];
      }
      for (size_t o = 0; o < candidate.outputs.size(); ++o) {
        candidate.outputs[o][dim] = signature.outputs[o];
      }
    }
    bool is_sound = !std::ranges::any_of(candidate.inputs, IsMixed) &&
                    !std::ranges::any_of(candidate.outputs, IsMixed);
    for (size_t i = 0; i < candidate.inputs.size() && is_sound; ++i) {
      is_sound = !MakesExtremes(request.inputs[i], request.placement, candidate.inputs[i]);
    }
    if (is_sound) {
      const double seconds = Seconds(request, op_class, candidate, Price::kEstimated);
      if (explanations_ != nullptr || layout_seed_.has_value() ||
          seconds <= kPricedFactor * estimates.least)
        estimates.all.push_back({seconds, candidate});
      estimates.least = std::min(estimates.least, seconds);
    }
    more = false;
    for (size_t d = rank; d-- > 0 && !more;) {
      more = ++at[d] < candidates[d].size();
      if (!more) at[d] = 0;
    }
  }
  return estimates;
}

absl::Status SignatureChooser::NoneIsSound(const ChoiceRequest& request) {
  // All-B is sound, so a hint forbids it.
  std::vector<std::string> hints;
  for (const auto& output : request.outputs) {
    hints.push_back(output.hint.has_value() ? output.hint->ToString() : "none");
  }
  return HintError(*request.op,
                   absl::StrCat("the hint ", absl::StrJoin(hints, ", "),
                                " (maxima and minima are only passed on, and kinds of partial "
                                "values do not mix)"),
                   request.placement);
}

void SignatureChooser::Explain(const Op& op, const NdSignature& best, double seconds,
                               Alternatives alternatives) {
  constexpr size_t kShown = 6;
  std::string& line = (*explanations_)[op.name];
  line = absl::StrFormat("%.3g us", seconds * 1e6);
  std::ranges::stable_sort(alternatives, {}, &std::pair<double, std::string>::first);
  const size_t shown = std::min(kShown, alternatives.size());
  for (size_t k = 0; k < shown; ++k) {
    if (alternatives[k].second == best.ToString()) continue;
    absl::StrAppendFormat(&line, "; or %s, %.3g us", alternatives[k].second,
                          alternatives[k].first * 1e6);
  }
  if (shown < alternatives.size()) {
    absl::StrAppendFormat(&line, "; and %d dearer ones", alternatives.size() - shown);
  }
}

absl::StatusOr<NdSignature> SignatureChooser::Pick(const ChoiceRequest& request,
                                                   const OpClass& op_class,
                                                   const Candidates& candidates) {
  auto [estimated, least] = EstimateAll(request, op_class, candidates);
  if (estimated.empty()) return NoneIsSound(request);
  if (layout_seed_.has_value()) {
    const RandomKey key = MakeRandomKey(*layout_seed_, request.op->name, 0);
    const auto& [seconds, drawn] = estimated[Uint32At(key, 0) % estimated.size()];
    if (explanations_ != nullptr) Explain(*request.op, drawn, seconds, {});
    return drawn;
  }
  if (explanations_ == nullptr) {
    std::erase_if(estimated, [least = least](const auto& entry) {
      return entry.first > kPricedFactor * least;
    });
    if (estimated.size() == 1) return estimated[0].second;
  }
  NdSignature best;
  double best_seconds = std::numeric_limits<double>::infinity();
  Alternatives alternatives;
  for (const auto& [estimate, alternative] : estimated) {
    const bool is_far = estimate > kPricedFactor * least;
    const double seconds =
        is_far ? estimate : Seconds(request, op_class, alternative, Price::kExact);
    if (!is_far && IsLess(seconds, best_seconds)) {
      best = alternative;
      best_seconds = seconds;
    }
    if (explanations_ != nullptr) alternatives.push_back({seconds, alternative.ToString()});
  }
  if (explanations_ != nullptr) {
    Explain(*request.op, best, best_seconds, std::move(alternatives));
  }
  return best;
}

double SignatureChooser::Seconds(const ChoiceRequest& request, const OpClass& op_class,
                                 const NdSignature& signature, Price price) {
  const Placement& placement = placements_[request.placement];
  double seconds =
      op_class.seconds /
      static_cast<double>(WorkingParts(signature.inputs, signature.outputs, placement.hierarchy()));
  bool makes_addends = false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputState& input = request.inputs[i];
    seconds += InputSeconds(request, input, signature.inputs[i], price);
    makes_addends |=
        signature.inputs[i].has_partial() && !(input.sbp.has_value() && input.sbp->has_partial());
  }
  for (size_t o = 0; o < request.outputs.size(); ++o) {
    const NdSbp& output = signature.outputs[o];
    const TensorType& type = graph_.type(request.op->outputs[o]);
    const std::pair<int, int> here(request.placement, request.placement);
    if (request.outputs[o].wanted.has_value()) {
      seconds += BoxingSeconds(type, {}, here, output, *request.outputs[o].wanted, price);
    } else if (makes_addends && output.has_partial()) {
      NdSbp sum = output;
      for (int d = 0; d < sum.rank(); ++d) {
        if (sum[d].is_partial()) sum[d] = type.shape.rank() > 0 ? sbp::S(0) : sbp::B;
      }
      seconds += BoxingSeconds(type, {}, here, output, sum, price);
    }
  }
  return seconds;
}

double SignatureChooser::InputSeconds(const ChoiceRequest& request, const InputState& input,
                                      const NdSbp& to, Price price) {
  if (!input.sbp.has_value()) return 0;  // the source makes it so; addends are B on one, else zeros
  if (std::ranges::find(input.ready, to) != input.ready.end()) return 0;
  return BoxingSeconds(input.type, input.micro_batch, {input.placement, request.placement},
                       *input.sbp, to, price);
}

double SignatureChooser::BoxingSeconds(const TensorType& type, const MicroBatchLayout& micro_batch,
                                       std::pair<int, int> placements, const NdSbp& from,
                                       const NdSbp& to, Price price) {
  if (placements.first == placements.second && from == to) return 0;
  const std::array<int, 8> key = {Id(type),
                                  static_cast<int>(micro_batch.sbp.kind),
                                  micro_batch.sbp.axis,
                                  micro_batch.micro_batches,
                                  placements.first,
                                  placements.second,
                                  Id(from),
                                  Id(to)};
  auto [it, is_new] = boxing_seconds_[static_cast<int>(price)].try_emplace(key, 0);
  if (is_new) {
    const Machine& machine = planner_.machine();
    const Placement& source = placements_[placements.first];
    const Placement& destination = placements_[placements.second];
    double bytes = 0, seconds = 0;
    LinkClass link = LinkClass::kProcess;
    if (price == Price::kEstimated || destination.size() > kMaxPricedDevices) {
      bytes = EstimateBytes(type, source, destination, from, to) / micro_batch.micro_batches;
      if (!micro_batch.sbp.is_split()) bytes *= micro_batch.micro_batches;
      link = machine.LinkAcross(source, destination);
      seconds = bytes / machine.link(link).bandwidth;
    } else {
      for (const BoxingStep& step : planner_.Route(
               {type, micro_batch.sbp, micro_batch.micro_batches, source, destination, from, to})) {
        const auto step_bytes = static_cast<double>(step.cost.busiest_bytes);
        bytes += step_bytes;
        seconds += step_bytes / machine.link(step.cost.link).bandwidth;
        link = std::max(link, step.cost.link);
      }
    }
    // One latency a transfer: with one a message, small tensors would be computed everywhere
    // rather than summed.
    if (bytes > 0) it->second = micro_batch.micro_batches * (seconds + machine.link(link).latency);
  }
  return it->second;
}

std::vector<int> SignatureChooser::KeyOf(const ChoiceRequest& request, int op_class) {
  std::vector<int> key = {op_class, request.placement};
  const auto add = [&](const std::optional<NdSbp>& sbp) {
    key.push_back(sbp.has_value() ? Id(*sbp) : kNone);
  };
  for (const InputState& input : request.inputs) {
    key.insert(key.end(), {input.placement, static_cast<int>(input.micro_batch.sbp.kind),
                           input.micro_batch.sbp.axis, input.micro_batch.micro_batches});
    add(input.sbp);
    add(input.required);
    add(input.preferred);
    key.push_back(static_cast<int>(input.ready.size()));
    for (const NdSbp& ready : input.ready) key.push_back(Id(ready));
  }
  for (const OutputState& output : request.outputs) {
    add(output.hint);
    add(output.wanted);
  }
  return key;
}

int SignatureChooser::Id(const NdSbp& sbp) {
  return sbp_ids_.try_emplace(sbp, static_cast<int>(sbp_ids_.size())).first->second;
}

int SignatureChooser::Id(const TensorType& type) {
  return type_ids_.try_emplace({type.dtype, type.shape.dims()}, static_cast<int>(type_ids_.size()))
      .first->second;
}

}  // namespace braid::compiler
