#include "compiler/physical/assign_streams.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "compiler/physical/device_sets.h"

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

// Which collectives devices can do among themselves: those of which each has all its members on one
// node. A device may be in one list of devices only, since there is one order in which it comes to
// what they do: the first such collective of the graph that it is in decides.
class DeviceLists {
 public:
  explicit DeviceLists(const NodeKinds* kinds) : kinds_(*kinds) {}

  bool May(const TaskGroup& group) {
    const auto* const collective = std::get_if<Collective>(&group.work);
    if (collective == nullptr || !kinds_.DoCollectives(group.placement) ||
        !MembersShareNodes(group.placement, collective->hierarchy_dim)) {
      return false;
    }
    const int set = sets_.Intern(group.placement);
    for (const auto& [other, placement] : lists_) {
      if (sets_.Intersection(set, other) < 0) continue;
      return set == other && placement.HasDevicesOf(group.placement);
    }
    lists_.emplace_back(set, group.placement);
    return true;
  }

 private:
  bool MembersShareNodes(const Placement& placement, int dim) {
    if (dim < 0) return placement.num_nodes() == 1;
    const auto [found, is_new] = shares_nodes_.try_emplace({placement, dim}, true);
    for (int rank = 0; is_new && found->second && rank < placement.size(); ++rank) {
      std::vector<int64_t> first = placement.CoordinateOf(rank);
      first[dim] = 0;
      found->second = placement.device(rank).node == placement.device(placement.RankOf(first)).node;
    }
    return found->second;
  }

  const NodeKinds& kinds_;
  DeviceSets sets_;
  std::vector<std::pair<int, Placement>> lists_;
  std::map<std::pair<Placement, int>, bool> shares_nodes_;
};

}  // namespace

PhysicalGraph AssignStreams(PhysicalGraph graph, const OpRegistry& registry) {
  DeviceLists device_lists(&graph.kinds);
  for (GroupId id = 0; id < static_cast<GroupId>(graph.groups().size()); ++id) {
    TaskGroup& group = graph.group(id);
    const bool is_host = graph.kinds.AreHost(group.placement);
    if (group.is<VariableOwner>()) {
      group.stream = StreamKind::kCompute;
    } else if (device_lists.May(group)) {
      group.stream = StreamKind::kCollective;
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
