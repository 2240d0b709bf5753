#include "api/layer_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/plan_report.h"
#include "graph/op_roles.h"

namespace braid {
namespace {

struct Costs {
  int64_t parameters = 0;
  double activation_bytes = 0;
  double flops = 0;

  void Add(const Costs& other) {
    parameters += other.parameters;
    activation_bytes += other.activation_bytes;
    flops += other.flops;
  }
};

std::string ScopeOf(const std::string& name) {
  const size_t end = name.rfind('.');
  return end == std::string::npos ? "" : name.substr(0, end);
}

class Layers {
 public:
  explicit Layers(const LogicalGraph& graph) : graph_(graph) {
    for (const Op& op : graph.ops()) {
      if (IsParameter(op)) variables_.emplace(op.name, ScopeOf(op.name));
    }
    for (const auto& [name, layer] : variables_) with_parameters_.insert(layer);
    for (const Op& op : graph.ops()) {
      const std::string layer = LayerOf(op);
      const auto [costs, is_new] = costs_.try_emplace(layer);
      if (is_new) order_.push_back(layer);
      costs->second.Add(CostsOf(op));
    }
  }

  std::string ToString() const {
    if (variables_.empty()) return "";
    Costs all, rest;
    for (const auto& [layer, costs] : costs_) all.Add(costs);
    std::vector<std::pair<std::string, Costs>> rows = {
        {"layer", {}}};  // its numbers are the columns' names
    for (const std::string& layer : order_) {
      const Costs& costs = costs_.at(layer);
      const bool is_shown =
          !layer.empty() && (costs.parameters > 0 || costs.flops > kShare * all.flops);
      if (is_shown) {
        rows.emplace_back(layer, costs);
      } else {
        rest.Add(costs);
      }
    }
    rows.emplace_back("other", rest);
    rows.emplace_back("all", all);
    size_t width = 0;
    for (const auto& [name, costs] : rows) width = std::max(width, name.size());
    std::string text;
    for (const auto& [name, costs] : rows) {
      const bool is_head = text.empty();
      absl::StrAppendFormat(&text, "  %-*s %14s %14s %14s\n", static_cast<int>(width), name,
                            is_head ? "parameters" : absl::StrFormat("%d", costs.parameters),
                            is_head ? "activations" : BytesText(costs.activation_bytes),
                            is_head ? "operations" : FlopsText(costs.flops));
    }
    return text;
  }

 private:
  // Of all operations, from which on a scope without variables has a line.
  static constexpr double kShare = 0.01;

  bool IsParameter(const Op& op) const {
    return IsVariable(graph_, op) && op.attrs.Has("trainable") && op.attrs.Bool("trainable");
  }

  // The scope of the layer that the op works for: the nearest that has variables, else its own.
  std::string LayerOf(const Op& op) const {
    const Op* of = &op;
    while (of->forward != kNone) of = &graph_.op(of->forward);
    for (std::string scope = of->name; !scope.empty(); scope = ScopeOf(scope)) {
      // An update lies in the scope of its variable.
      if (const auto variable = variables_.find(scope); variable != variables_.end()) {
        return variable->second;
      }
      if (with_parameters_.contains(scope)) return scope;
    }
    return ScopeOf(of->name);
  }

  Costs CostsOf(const Op& op) const {
    std::vector<TensorType> inputs, outputs;
    for (const TensorId input : op.inputs) inputs.push_back(graph_.type(input));
    for (const TensorId output : op.outputs) outputs.push_back(graph_.type(output));
    Costs costs;
    if (IsParameter(op)) costs.parameters = outputs[0].shape.num_elements();
    if (IsVariable(graph_, op)) return costs;
    const auto is_split = [](const Sbp& sbp) { return sbp.is_split(); };
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool gives_addends = op.acts_per_step > 1 && op.output_micro_batch_sbp[i].is_partial();
      costs.activation_bytes += static_cast<double>(outputs[i].shape.num_elements()) *
                                static_cast<double>(SizeOf(outputs[i].dtype)) *
                                (gives_addends ? op.acts_per_step : 1);
    }
    // Where nothing is cut, as where addends are added up, each act does the whole.
    const bool is_cut = std::ranges::any_of(op.input_micro_batch_sbp, is_split) ||
                        std::ranges::any_of(op.output_micro_batch_sbp, is_split);
    costs.flops =
        DefOf(graph_, op).CountFlops({.attrs = op.attrs, .inputs = inputs, .outputs = outputs}) *
        (is_cut ? 1 : op.acts_per_step);
    return costs;
  }

  static std::string FlopsText(double flops) {
    constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    int unit = 0;
    for (; flops >= 1000 && unit < 5; ++unit) flops /= 1000;
    return absl::StrFormat("%.3g %s", flops, kUnits[unit]);
  }

  const LogicalGraph& graph_;
  std::map<std::string, std::string> variables_;  // parameters: their layers
  std::set<std::string> with_parameters_;         // layers
  std::map<std::string, Costs> costs_;
  std::vector<std::string> order_;
};

}  // namespace

std::string LayerTable(const LogicalGraph& graph) { return Layers(graph).ToString(); }

}  // namespace braid
