#include "compiler/physical/assign_streams.h"

#include <algorithm>
#include <span>
#include <utility>

namespace braid::compiler {
namespace {

// Nothing goes in and data comes out: it may run ahead of the step. Feeds cannot, since the host
// gives them step by step.
bool IsReader(const TaskGroup& group, const OpRegistry& registry) {
  const std::span<const KernelCall> kernels = group.kernels();
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelCall& kernel) {
    const OpDef* const def = registry.Find(kernel.op);
    return def != nullptr && def->role() == OpRole::kReader;
  });
}

bool AreOnOneNode(const Placement& a, const Placement& b) {
  return a.num_nodes() == 1 && b.num_nodes() == 1 && a.device(0).node == b.device(0).node;
}

}  // namespace

PhysicalGraph AssignStreams(PhysicalGraph graph, const OpRegistry& registry) {
  for (GroupId id = 0; id < static_cast<GroupId>(graph.groups().size()); ++id) {
    TaskGroup& group = graph.group(id);
    const bool is_host = graph.kinds.AreHost(group.placement);
    if (group.is<VariableOwner>()) {
      group.stream = StreamKind::kCompute;
    } else if (group.movement() != nullptr) {
      const Placement& from = graph.reg(group.inputs.at(0).reg).placement;
      group.stream = is_host && graph.kinds.AreHost(from) && AreOnOneNode(group.placement, from)
                         ? StreamKind::kCompute
                         : StreamKind::kTransfer;
    } else if (group.is<Compute>()) {
      // What is outside of the plan is the host's: it came here on the input's stream.
      if (IsReader(group, registry)) {
        group.stream = StreamKind::kInput;
      } else if (is_host) {
        group.stream = StreamKind::kCompute;
      } else if (group.stream == StreamKind::kInput) {
        group.stream = StreamKind::kTransfer;
      }
    }
    // Staging says on which it is.
  }
  return graph;
}

}  // namespace braid::compiler
