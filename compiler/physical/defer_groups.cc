#include "compiler/physical/defer_groups.h"

#include <utility>
#include <vector>

namespace braid::compiler {
namespace {

// What acts for every micro-batch holds memory that the next one needs.
bool MayWait(const TaskGroup& group) {
  return group.is<Compute>() && group.stream == StreamKind::kCompute && group.acts_per_step == 1;
}

}  // namespace

std::vector<bool> FindDeferrable(const PhysicalGraph& graph) {
  std::vector<bool> is_deferrable;
  std::vector<GroupId> urgent;
  for (const TaskGroup& group : graph.groups()) {
    is_deferrable.push_back(MayWait(group));
    if (!MayWait(group)) urgent.push_back(group.id);
  }
  // What an urgent group waits for is urgent.
  while (!urgent.empty()) {
    const TaskGroup& group = graph.group(urgent.back());
    urgent.pop_back();
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      if (reg.initial_tokens > 0 || !is_deferrable[reg.producer]) continue;
      is_deferrable[reg.producer] = false;
      urgent.push_back(reg.producer);
    }
  }
  return is_deferrable;
}

PhysicalGraph DeferGroups(PhysicalGraph graph) {
  const std::vector<bool> is_deferrable = FindDeferrable(graph);
  for (GroupId id = 0; id < static_cast<GroupId>(is_deferrable.size()); ++id) {
    graph.group(id).is_deferrable = is_deferrable[id];
  }
  return graph;
}

}  // namespace braid::compiler
