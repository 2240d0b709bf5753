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

// kind, or kind_1, ...: the first under the current scope that no op lies in.
std::string FreeName(const LogicalGraph& graph, const std::string& kind) {
  const std::string scope = graph.ScopedName(kind);
  std::set<std::string> taken;  // of those that begin like it
  for (const Op& op : graph.ops()) {
    if (!op.name.starts_with(scope)) continue;
    const size_t end = op.name.find('.', scope.size());
    if (end != std::string::npos) taken.insert(op.name.substr(0, end));
  }
  std::string name = kind;
  for (int i = 1; taken.contains(graph.ScopedName(name)); ++i) {
    name = absl::StrFormat("%s_%d", kind, i);
  }
  return name;
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

bool NameLayer(LogicalGraph& graph, std::string_view kind, std::string& name, bool share,
               SourceLocation where) {
  const auto fail = [&](const std::string& problem) {
    graph.Fail(absl::InvalidArgumentError(
        absl::StrFormat("%s '%s': %s (%s)", kind, name, problem, where.ToString())));
    return false;
  };
  if (name.empty()) {
    if (share) return fail("it shares the variables of a layer whose .name is not given");
    name = FreeName(graph, std::string(kind));
    return true;
  }
  const std::string scope = graph.ScopedName(name);
  const Op* const first = FirstOpOf(graph, scope);
  if (first != nullptr && !share) {
    return fail(absl::StrFormat(
        "a layer of that name is at %s already; give this one another .name, or .share = true if "
        "it has the same variables",
        first->location.ToString()));
  }
  if (first == nullptr && share) {
    const std::vector<std::string> layers = LayersOf(graph);
    return fail(absl::StrFormat(
        "it shares the variables of a layer that is not there before it; the nearest of %d: %s",
        layers.size(), NearestNames(scope, layers)));
  }
  return true;
}

}  // namespace braid
