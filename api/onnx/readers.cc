#include "api/onnx/readers.h"

#include <cstddef>

#include "api/onnx/importer.h"
#include "api/onnx/onnx.pb.h"

namespace braid::onnx {
namespace {

// What a damaged file might lead to.
constexpr int kMostNames = 64;  // one behind the other
constexpr int kMostSteps = 4096;

bool OnlyNames(const Use& use) {
  const std::string& op = use.node->op_type();
  const bool is_alone = use.node->input_size() == 1;
  const bool has_such_name =
      ((op == "Identity" || op == "Cast") && is_alone) || (op == "CastLike" && use.input == 0);
  return has_such_name && DomainOf(use.node->domain()).empty() && use.node->output_size() == 1;
}

}  // namespace

// Graphs in nodes see the names outside.
template <class Nodes>
void Readers::Collect(const Nodes& nodes, bool is_in_function, Body& body) {
  for (const NodeProto& node : nodes) {
    for (int i = 0; i < node.input_size(); ++i) {
      if (node.input(i).empty()) continue;  // it is left out
      body.uses.insert({node.input(i), {&node, i, is_in_function}});
    }
    for (const AttributeProto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      Collect(attribute.g().node(), is_in_function, body);
      for (const ValueInfoProto& output : attribute.g().output()) {
        body.leaving.insert(output.name());
      }
    }
  }
}

Readers::Readers(const ModelProto& model) {
  Collect(model.graph().node(), /*is_in_function=*/false, graph_);
  for (const ValueInfoProto& output : model.graph().output()) outputs_.insert(output.name());
  for (const FunctionProto& proto : model.functions()) {
    Function& function = functions_[{DomainOf(proto.domain()), proto.name()}];
    function = {.proto = &proto, .body = {}};
    Collect(proto.node(), /*is_in_function=*/true, function.body);
  }
}

std::vector<Use> Readers::Of(const std::string& name) const {
  std::vector<Use> found;
  int steps = 0;
  if (!Follow({.name = name, .body = &graph_}, 0, steps, found)) found.push_back({});
  return found;
}

bool Readers::Follow(const Named& value, int depth, int& steps, std::vector<Use>& found) const {
  if (depth > kMostNames) return false;
  if (value.name.empty()) return true;
  if (value.body->leaving.contains(value.name)) found.push_back({});
  const auto [begin, end] = value.body->uses.equal_range(value.name);
  for (auto each = begin; each != end; ++each) {
    if (++steps > kMostSteps) return false;
    const Use& use = each->second;
    const auto called = functions_.find({DomainOf(use.node->domain()), use.node->op_type()});
    if (called != functions_.end()) {
      const Function& function = called->second;
      if (use.input >= function.proto->input_size()) continue;
      const Call call = {value.body, use.node, &function, value.call};
      const Named inside = {function.proto->input(use.input), &function.body, &call};
      if (!Follow(inside, depth + 1, steps, found)) return false;
    } else if (OnlyNames(use)) {
      const Named renamed = {use.node->output(0), value.body, value.call};
      if (!Follow(renamed, depth + 1, steps, found)) return false;
    } else {
      found.push_back(use);
    }
  }
  if (value.call == nullptr) return true;
  // What a function gives back as it is has a name where it was called, too.
  const auto& outputs = value.call->function->proto->output();
  for (int i = 0; i < outputs.size() && i < value.call->node->output_size(); ++i) {
    if (outputs[i] != value.name) continue;
    const Named outside = {value.call->node->output(i), value.call->around, value.call->outer};
    if (!Follow(outside, depth + 1, steps, found)) return false;
  }
  return true;
}

}  // namespace braid::onnx
