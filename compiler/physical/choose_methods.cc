#include "compiler/physical/choose_methods.h"

#include <algorithm>
#include <utility>

#include "compiler/collective_methods.h"

namespace braid::compiler {

PhysicalGraph ChooseMethods(PhysicalGraph graph) {
  for (GroupId id = 0; id < static_cast<GroupId>(graph.groups().size()); ++id) {
    TaskGroup& group = graph.group(id);
    auto* const collective = std::get_if<Collective>(&group.work);
    if (collective == nullptr) continue;
    const Movement& movement = collective->movement;
    // All ranks together are one dimension, whatever the hierarchy.
    CollectiveUse use = UseOf(collective->kind, movement.source, movement.destination,
                              group.placement, std::max(collective->hierarchy_dim, 0));
    if (collective->hierarchy_dim < 0) use.members = group.placement.size();
    const Register& out = graph.reg(group.outputs[0]);
    if (out.parts.size() > 1) use.bytes = out.slot_bytes;
    use.spread = MemberSpread::kProcess;
    collective->on_one_node = MethodOf(use);
    use.spread = MemberSpread::kProcesses;
    collective->between_nodes = MethodOf(use);
    use.spread = MemberSpread::kHosts;
    collective->between_hosts = MethodOf(use);
    if (group.stream == StreamKind::kCollective) {
      collective->on_one_node = collective->between_nodes =
          collective->between_hosts = {.algorithm = CollectiveAlgorithm::kDevice};
    }
  }
  return graph;
}

}  // namespace braid::compiler
