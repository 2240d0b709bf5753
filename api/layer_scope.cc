#include "api/layer_scope.h"

#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/op_roles.h"
#include "runtime/base/nearest_names.h"

namespace braid {

namespace {

// An op of the layer with this scope, if there is one.
const Op* FirstOpOf(const LogicalGraph& graph, const std::string& scope) {
  const std::string prefix = scope + ".";
  for (const Op& op : graph.ops()) {
    if (op.name.starts_with(prefix)) return &op;
  }
  return nullptr;
}

// The scopes that hold variables.
std::vector<std::string> LayersOf(const LogicalGraph& graph) {
  std::set<std::string> scopes;
  for (const Op& op : graph.ops()) {
    const size_t end = op.name.rfind('.');
    if (IsVariable(graph, op) && end != std::string::npos) scopes.insert(op.name.substr(0, end));
  }
  return {scopes.begin(), scopes.end()};
}

}  // namespace

std::string NameLayer(LogicalGraph& graph, const LayerNaming& naming, SourceLocation where) {
  const auto fail = [&](const std::string& problem) {
    graph.Fail(absl::InvalidArgumentError(
        absl::StrFormat("%s '%s': %s (%s)", naming.kind, naming.name, problem, where.ToString())));
    return std::string();
  };
  if (naming.name.empty()) {
    if (naming.share) return fail("it shares the variables of a layer whose .name is not given");
    std::string name(naming.kind);
    for (int i = 1; FirstOpOf(graph, graph.ScopedName(name)) != nullptr; ++i) {
      name = absl::StrFormat("%s_%d", naming.kind, i);
    }
    return name;
  }
  const std::string scope = graph.ScopedName(naming.name);
  const Op* const first = FirstOpOf(graph, scope);
  if (first != nullptr && !naming.share) {
    return fail(absl::StrFormat(
        "a layer of that name is at %s already; give this one another .name, or .share = true if "
        "it has the same variables",
        first->location.ToString()));
  }
  if (first == nullptr && naming.share) {
    const std::vector<std::string> layers = LayersOf(graph);
    return fail(absl::StrFormat(
        "it shares the variables of a layer that is not there before it; the nearest of %d: %s",
        layers.size(), NearestNames(scope, layers)));
  }
  return naming.name;
}

}  // namespace braid
