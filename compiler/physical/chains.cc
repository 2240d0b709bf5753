#include "compiler/physical/chains.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/physical/chain_classes.h"
#include "compiler/physical/regroup.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

absl::StatusOr<Regrouping> CutClasses(const PhysicalGraph& graph) {
  BRAID_ASSIGN_OR_RETURN(const ChainClasses classes, FindChainClasses(graph));
  Regrouping result(graph);
  for (const std::vector<GroupId>& members : classes.members) {
    GroupId first = kNone;
    for (GroupId id : members) {
      if (first == kNone) first = id;
      result.group_of[id] = first;
      if (!classes.urgent_readers[id].empty()) first = kNone;
    }
  }
  return result;
}

// What is left to join once the chains are known: registers, variables and control edges.
class EdgeMerger {
 public:
  explicit EdgeMerger(const PhysicalGraph& graph)
      : graph_(graph), consumers_(graph.Consumers()), result_(graph) {}

  absl::StatusOr<Regrouping> Run() {
    BRAID_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    MergeOutputs();
    MergeVariables();
    DropImpliedEdges();
    MergeControlEdges();
    return std::move(result_);
  }

 private:
  using Reader = std::pair<GroupId, int>;  // group, period of its input

  std::vector<Reader> ReadersOf(GroupRegisterId id) const {
    std::vector<Reader> readers;
    for (const auto& [group, index] : consumers_[id]) {
      readers.emplace_back(result_.group_of[group], graph_.group(group).inputs[index].period);
    }
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    return readers;
  }

  // All lists of at least two.
  template <typename Key>
  void AddLists(std::map<Key, std::vector<GroupRegisterId>> lists) {
    for (auto& [key, list] : lists) {
      if (list.size() > 1) result_.merged_registers.push_back(std::move(list));
    }
  }

  void MergeOutputs() {
    using Key = std::tuple<GroupId, int, std::vector<Reader>>;  // producer, period
    std::map<Key, std::vector<GroupRegisterId>> lists;
    for (const TaskGroup& group : graph_.groups()) {
      if (!group.is<Compute>() || group.outputs.size() < 2) continue;
      for (GroupRegisterId id : group.outputs) {
        const Register& reg = graph_.reg(id);
        if (reg.is_control() || consumers_[id].empty()) continue;
        lists[{group.id, reg.period, ReadersOf(id)}].push_back(id);
      }
    }
    AddLists(std::move(lists));
  }

  void MergeVariables() {
    using Edge = std::tuple<GroupId, int, int, int>;  // producer, its period, tokens, own period
    using Key = std::tuple<Placement, int, std::vector<Reader>, std::vector<Edge>>;
    std::map<Key, std::vector<GroupRegisterId>> lists;
    for (const TaskGroup& group : graph_.groups()) {
      if (!group.is<VariableOwner>() || group.outputs.size() != 1) continue;
      std::vector<Edge> updates;
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph_.reg(input.reg);
        updates.emplace_back(reg.producer, reg.period, reg.initial_tokens, input.period);
      }
      std::sort(updates.begin(), updates.end());
      updates.erase(std::unique(updates.begin(), updates.end()), updates.end());
      auto& list =
          lists[{group.placement, group.acts_per_step, ReadersOf(group.outputs[0]), updates}];
      list.push_back(group.outputs[0]);
      result_.group_of[group.id] = graph_.reg(list[0]).producer;
    }
    AddLists(std::move(lists));
  }

  // An edge says nothing where a longer path leads from the one group to the other: of control
  // edges and of data from rank to rank, on the same devices throughout. What leads through an
  // exchange may skip ranks.
  void DropImpliedEdges() {
    FindDeviceSets();
    std::vector<size_t> position(graph_.groups().size());
    for (size_t i = 0; i < order_.size(); ++i) position[order_[i]] = i;
    std::vector<GroupId> seen(graph_.groups().size(), kNone);
    for (const TaskGroup& group : graph_.groups()) {
      if (group.is<Exchange>()) continue;
      size_t first = order_.size();  // what stands before every candidate cannot come after one
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (IsOrdering(reg)) first = std::min(first, position[reg.producer]);
      }
      if (first == order_.size()) continue;
      // Groups from which some producer of `group` can be reached, and producers of its data.
      std::vector<GroupId> stack;
      const auto visit = [&](GroupId from, GroupId id) {
        if (position[id] < first || !SameDevices(from, id) || seen[id] == group.id) return;
        seen[id] = group.id;
        stack.push_back(id);
      };
      std::vector<GroupId> starts;
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (reg.initial_tokens != 0 || !SameDevices(group.id, reg.producer)) continue;
        if (reg.is_control()) {
          starts.push_back(reg.producer);
        } else {
          visit(group.id, reg.producer);
        }
      }
      for (GroupId start : starts) VisitProducers(start, visit);
      while (!stack.empty()) {
        const GroupId next = stack.back();
        stack.pop_back();
        VisitProducers(next, visit);
      }
      for (const GroupInput& input : group.inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (IsOrdering(reg) && seen[reg.producer] == group.id && consumers_[reg.id].size() == 1) {
          result_.dropped[reg.id] = true;
        }
      }
    }
  }

  template <typename Visit>
  void VisitProducers(GroupId id, const Visit& visit) const {
    for (const GroupInput& input : graph_.group(id).inputs) {
      const Register& reg = graph_.reg(input.reg);
      if (reg.initial_tokens == 0) visit(id, reg.producer);
    }
  }

  static bool IsOrdering(const Register& reg) {
    return reg.is_control() && reg.initial_tokens == 0;
  }

  void FindDeviceSets() {
    std::map<Placement, int, Placement::DevicesLess> number;
    for (const TaskGroup& group : graph_.groups()) {
      const bool by_rank = !group.is<Exchange>();
      devices_.push_back(
          by_rank
              ? number.try_emplace(group.placement, static_cast<int>(number.size())).first->second
              : kNone);
    }
  }
  bool SameDevices(GroupId a, GroupId b) const {
    return devices_[a] != kNone && devices_[a] == devices_[b];
  }

  // One edge for all that lead from one group to another.
  void MergeControlEdges() {
    using Key = std::tuple<GroupId, int, int, std::vector<Reader>>;  // producer, period, tokens
    std::map<Key, std::vector<GroupRegisterId>> lists;
    for (const Register& reg : graph_.registers()) {
      if (!reg.is_control() || result_.dropped[reg.id]) continue;
      lists[{result_.group_of[reg.producer], reg.period, reg.initial_tokens, ReadersOf(reg.id)}]
          .push_back(reg.id);
    }
    AddLists(std::move(lists));
  }

  const PhysicalGraph& graph_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::vector<GroupId> order_;
  std::vector<int> devices_;  // by group: one number for each list of devices
  Regrouping result_;
};

}  // namespace

absl::StatusOr<PhysicalGraph> FormChains(PhysicalGraph graph) {
  BRAID_ASSIGN_OR_RETURN(const Regrouping chains, CutClasses(graph));
  BRAID_ASSIGN_OR_RETURN(graph, Regroup(std::move(graph), chains));
  BRAID_ASSIGN_OR_RETURN(const Regrouping edges, EdgeMerger(graph).Run());
  return Regroup(std::move(graph), edges);
}

}  // namespace braid::compiler
