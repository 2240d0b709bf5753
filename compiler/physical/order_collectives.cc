#include "compiler/physical/order_collectives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "compiler/physical/act_phases.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

using Groups = std::vector<GroupId>;

// The collectives that devices do among themselves in one order, by list of devices.
absl::StatusOr<std::vector<Groups>> ListsOf(const PhysicalGraph& graph) {
  std::map<Placement, Groups, Placement::DevicesLess> by_devices;
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Collective>() && group.stream == StreamKind::kCollective &&
        !graph.kinds.CollectInAnyOrder(group.placement)) {
      by_devices[group.placement].push_back(group.id);
    }
  }
  std::map<DeviceId, GroupId> first_of;
  std::vector<Groups> lists;
  for (const auto& [placement, groups] : by_devices) {
    for (const DeviceId& device : placement.devices()) {
      const auto [other, is_new] = first_of.try_emplace(device, groups[0]);
      if (is_new) continue;
      return absl::InternalError(absl::StrFormat(
          "%s and %s are done by devices among themselves, on %s and on %s: a device that is in "
          "both lists has no order of its own for them; one of them has to go through the host",
          DescribeGroup(graph, other->second), DescribeGroup(graph, groups[0]),
          graph.group(other->second).placement.ToString(), placement.ToString()));
    }
    lists.push_back(groups);
  }
  return lists;
}

// What acts once a step comes before the micro-batches of its phase.
struct Phase {
  int phase = 0;  // see act_phases.h
  int acts = 1;
  friend auto operator<=>(const Phase&, const Phase&) = default;
};

}  // namespace

absl::StatusOr<std::vector<OrderEdge>> CollectiveOrder(const PhysicalGraph& graph) {
  BRAID_ASSIGN_OR_RETURN(std::vector<Groups> lists, ListsOf(graph));
  std::vector<OrderEdge> edges;
  if (lists.empty()) return edges;
  BRAID_ASSIGN_OR_RETURN(const Groups topological, graph.TopologicalOrder());
  std::vector<int> position(topological.size());
  for (size_t i = 0; i < topological.size(); ++i) position[topological[i]] = static_cast<int>(i);
  BRAID_ASSIGN_OR_RETURN(const ActPhases phases, FindActPhases(graph));
  const auto phase_of = [&](GroupId id) {
    return Phase{.phase = phases.of[id], .acts = graph.group(id).acts_per_step};
  };
  for (Groups& groups : lists) {
    std::sort(groups.begin(), groups.end(), [&](GroupId a, GroupId b) {
      return std::pair(phase_of(a), position[a]) < std::pair(phase_of(b), position[b]);
    });
    size_t begin = 0;  // of the phase
    for (size_t i = 0; i < groups.size(); ++i) {
      const Phase phase = phase_of(groups[i]);
      const bool is_last = i + 1 == groups.size();
      const bool goes_on = !is_last && phase_of(groups[i + 1]) == phase;
      if (!is_last) edges.push_back({groups[i], groups[i + 1], 0, goes_on ? phase.acts : 1});
      if (goes_on) continue;
      if (begin < i) edges.push_back({groups[i], groups[begin], 1, phase.acts});
      if (is_last && begin > 0) edges.push_back({groups[i], groups[0], 1, 1});
      begin = i + 1;
    }
  }
  return edges;
}

absl::StatusOr<PhysicalGraph> OrderCollectives(PhysicalGraph graph) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<OrderEdge> edges, CollectiveOrder(graph));
  for (const OrderEdge& edge : edges) {
    graph.AddControlEdge(edge.from, edge.to, edge.initial_tokens, edge.pieces);
  }
  return graph;
}

}  // namespace braid::compiler
