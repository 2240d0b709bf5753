#include "compiler/physical/assign_streams.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

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

// Of what moves from devices `from`, but for collectives that devices do among themselves.
StreamKind StreamOfMovement(const TaskGroup& group, const Placement& from, const NodeKinds& kinds) {
  if (!AreOnOneNode(group.placement, from)) return StreamKind::kTransfer;
  if (kinds.AreHost(group.placement) && kinds.AreHost(from)) return StreamKind::kCompute;
  // Devices that do collectives see each other's memory.
  const bool see_each_other = kinds.DoCollectives(group.placement) && kinds.DoCollectives(from);
  return see_each_other && group.is<Exchange>() ? StreamKind::kCopyIn : StreamKind::kTransfer;
}

// What cards' library for it reduces.
bool IsReducedBetweenNodes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16:
    case DType::kI32:
    case DType::kI64:
      return true;
    default:
      return false;
  }
}

// Which collectives devices can do among themselves: those of which each has all its members on one
// node, or on nodes whose devices do collectives with each other. Where they need an order, a
// device may be in one list of devices only, since there is one order in which it comes to what
// they do: the first such collective of the graph that it is in decides.
class DeviceLists {
 public:
  explicit DeviceLists(const NodeKinds* kinds) : kinds_(*kinds) {}

  bool May(const TaskGroup& group) {
    const auto* const collective = std::get_if<Collective>(&group.work);
    if (collective == nullptr) return false;
    const int dim = collective->hierarchy_dim;
    const bool reduces = collective->kind == CollectiveKind::kAllReduce ||
                         collective->kind == CollectiveKind::kReduceScatter;
    if (reduces && !IsReducedBetweenNodes(collective->movement.source.type.dtype) &&
        !MembersShareNodes(group.placement, dim)) {
      return false;
    }
    const auto [found, is_new] = may_.try_emplace({group.placement, dim}, false);
    if (is_new) found->second = Decide(group.placement, dim);
    return found->second;
  }

 private:
  bool Decide(const Placement& placement, int dim) {
    if (!kinds_.DoCollectives(placement)) return false;
    if (!MembersShareNodes(placement, dim) && !kinds_.CollectBetweenNodes(placement)) return false;
    if (kinds_.CollectInAnyOrder(placement)) return true;
    for (const DeviceId& device : placement.devices()) {
      const auto owner = list_of_.find(device);
      if (owner != list_of_.end()) return owner->second.HasDevicesOf(placement);
    }
    for (const DeviceId& device : placement.devices()) list_of_.emplace(device, placement);
    return true;
  }

  static bool MembersShareNodes(const Placement& placement, int dim) {
    if (dim < 0) return placement.num_nodes() == 1;
    for (int rank = 0; rank < placement.size(); ++rank) {
      std::vector<int64_t> first = placement.CoordinateOf(rank);
      first[dim] = 0;
      if (placement.device(rank).node != placement.device(placement.RankOf(first)).node) {
        return false;
      }
    }
    return true;
  }

  const NodeKinds& kinds_;
  std::map<DeviceId, Placement> list_of_;
  std::map<std::pair<Placement, int>, bool> may_;  // by placement and dimension of the hierarchy
};

}  // namespace

PhysicalGraph AssignStreams(PhysicalGraph graph, const OpRegistry& registry) {
  DeviceLists device_lists(&graph.kinds);
  for (GroupId id = 0; id < static_cast<GroupId>(graph.groups().size()); ++id) {
    TaskGroup& group = graph.group(id);
    const bool is_host = graph.kinds.AreHost(group.placement);
    if (group.is<VariableOwner>()) {
      group.stream = StreamKind::kCompute;
    } else if (group.exchange_lanes() == Exchange::Lanes::kPull) {
      // Its copies stand between two updates: on the thread that does them.
      group.stream = StreamKind::kCompute;
    } else if (device_lists.May(group)) {
      group.stream = StreamKind::kCollective;
    } else if (group.movement() != nullptr) {
      const Placement& from = graph.reg(group.inputs.at(0).reg).placement;
      group.stream = StreamOfMovement(group, from, graph.kinds);
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
