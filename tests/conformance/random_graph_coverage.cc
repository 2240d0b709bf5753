#include "tests/conformance/random_graph_coverage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/boxing/boxing.h"
#include "compiler/cost.h"
#include "graph/logical_graph.h"
#include "graph/op_def.h"
#include "runtime/base/status.h"

namespace braid::conformance {
namespace {

std::string KindOf(const Sbp& sbp) { return sbp.is_split() ? "S" : sbp.ToString(); }

std::string KindOf(const SbpSignature& signature) {
  std::string text;
  for (const Sbp& sbp : signature.inputs)
    absl::StrAppend(&text, text.empty() ? "" : ",", KindOf(sbp));
  absl::StrAppend(&text, "->");
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", KindOf(signature.outputs[i]));
  }
  return text;
}

// What the op does on dimension `dim` of its placement.
SbpSignature ChosenOn(const Op& op, int dim) {
  SbpSignature signature;
  for (const NdSbp& sbp : op.input_sbp) signature.inputs.push_back(sbp[dim]);
  for (const NdSbp& sbp : op.output_sbp) signature.outputs.push_back(sbp[dim]);
  return signature;
}

}  // namespace

absl::Status Coverage::Add(const std::string& explanation, const OpRegistry& registry) {
  // Its heading is a comment, too.
  const size_t begin = explanation.find("# Operators: ");
  const size_t end = explanation.find("\n# Transfers between layouts");
  if (begin == std::string::npos || end == std::string::npos) {
    return absl::InvalidArgumentError("the explanation has no section of ops");
  }
  BRAID_ASSIGN_OR_RETURN(const LogicalGraph graph,
                         LogicalGraph::Parse(explanation.substr(begin, end - begin), &registry));
  compiler::BoxingPlanner planner;
  for (const compiler::BoxingEstimate& boxing : compiler::EstimateStep(graph, planner, {}).boxing) {
    for (const auto rule : absl::StrSplit(boxing.rules, " + ", absl::SkipEmpty())) {
      ++rules_[std::string(rule)];
    }
  }
  // The rule that is asked first, whether a value can stay as it is.
  const compiler::BoxingRule& identity = compiler::BoxingRules().front();
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (identity.matches(compiler::EdgeTo(graph, op, static_cast<int>(i)))) {
        ++rules_[std::string(identity.name)];
      }
    }
  }
  for (const Op& op : graph.ops()) {
    const OpDef* def = registry.Find(op.type);
    if (def == nullptr || def->external() || op.placement->size() == 1) continue;
    std::vector<TensorType> inputs, outputs;
    for (TensorId id : op.inputs) inputs.push_back(graph.type(id));
    for (TensorId id : op.outputs) outputs.push_back(graph.type(id));
    const OpContext context{.attrs = op.attrs, .inputs = inputs, .outputs = outputs};
    for (const SbpSignature& signature : def->LegalSignatures(context, op.placement->size())) {
      legal_[op.type].insert(KindOf(signature));
    }
    for (size_t dim = 0; dim < op.placement->hierarchy().size(); ++dim) {
      if (op.placement->hierarchy()[dim] == 1) continue;
      ++chosen_[op.type][KindOf(ChosenOn(op, static_cast<int>(dim)))];
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> Coverage::MissingRules() const {
  std::vector<std::string> missing;
  for (const compiler::BoxingRule& rule : compiler::BoxingRules()) {
    if (!rules_.contains(rule.name)) missing.emplace_back(rule.name);
  }
  return missing;
}

int Coverage::CountOf(const std::string& op, const std::string& kind) const {
  const auto kinds = chosen_.find(op);
  if (kinds == chosen_.end()) return 0;
  const auto count = kinds->second.find(kind);
  return count == kinds->second.end() ? 0 : count->second;
}

size_t Coverage::KnownSignatures() const {
  size_t known = 0;
  for (const auto& [op, kinds] : legal_) known += kinds.size();
  return known;
}

std::vector<std::string> Coverage::MissingSignatures() const {
  std::vector<std::string> missing;
  for (const auto& [op, kinds] : legal_) {
    for (const std::string& kind : kinds) {
      if (CountOf(op, kind) == 0) missing.push_back(absl::StrCat(op, " ", kind));
    }
  }
  return missing;
}

double Coverage::MissingShare() const {
  return static_cast<double>(MissingSignatures().size()) /
         static_cast<double>(std::max<size_t>(KnownSignatures(), 1));
}

std::string Coverage::Report() const {
  std::string text = "boxing rules:";
  for (const auto& [rule, count] : rules_) absl::StrAppend(&text, " ", rule, " x", count);
  for (const auto& [op, kinds] : legal_) {
    absl::StrAppend(&text, "\n", op, ":");
    std::string missing;
    for (const std::string& kind : kinds) {
      const int count = CountOf(op, kind);
      if (count > 0) {
        absl::StrAppend(&text, " ", kind, " x", count);
      } else {
        absl::StrAppend(&missing, " ", kind);
      }
    }
    if (!missing.empty()) absl::StrAppend(&text, "; never:", missing);
  }
  const size_t known = KnownSignatures();
  absl::StrAppend(&text, "\n", known - MissingSignatures().size(), " of ", known,
                  " kinds of signatures of ", legal_.size(), " operators\n");
  return text;
}

}  // namespace braid::conformance
