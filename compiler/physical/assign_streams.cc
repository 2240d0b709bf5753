#include "compiler/physical/assign_streams.h"

#include <algorithm>
#include <utility>

namespace braid::compiler {
namespace {

bool IsCpu(const Placement& placement) { return placement.device_type() == "cpu"; }

// Nothing goes in and data comes out: it may run ahead of the step. Feeds cannot, since the host
// gives them step by step.
bool IsReader(const TaskGroup& group) {
  return std::any_of(group.kernels.begin(), group.kernels.end(),
                     [](const KernelCall& kernel) { return kernel.op == "read"; });
}

bool AreOnOneNode(const Placement& a, const Placement& b) {
  return a.num_nodes() == 1 && b.num_nodes() == 1 && a.device(0).node == b.device(0).node;
}

}  // namespace

PhysicalGraph AssignStreams(PhysicalGraph graph) {
  for (GroupId id = 0; id < static_cast<GroupId>(graph.groups().size()); ++id) {
    TaskGroup& group = graph.group(id);
    switch (group.kind) {
      case GroupKind::kVariable:
        group.stream = StreamKind::kCompute;
        break;
      case GroupKind::kCompute:
        if (IsReader(group)) {
          group.stream = StreamKind::kInput;
        } else if (IsCpu(group.placement)) {
          group.stream = StreamKind::kCompute;
        }
        break;
      case GroupKind::kCollective:
      case GroupKind::kExchange: {
        const Placement& from = graph.reg(group.inputs.at(0).reg).placement;
        const bool both_cpu = IsCpu(group.placement) && IsCpu(from);
        group.stream = both_cpu && AreOnOneNode(group.placement, from) ? StreamKind::kCompute
                                                                       : StreamKind::kTransfer;
        break;
      }
    }
  }
  return graph;
}

}  // namespace braid::compiler
