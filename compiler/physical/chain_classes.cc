#include "compiler/physical/chain_classes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "compiler/physical/act_phases.h"
#include "compiler/physical/defer_groups.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

// What a worker pushes goes into one update at a time.
bool IsChainable(const TaskGroup& group) {
  return group.is<Compute>() && group.stream != StreamKind::kInput && group.lanes() == 0;
}

bool IsCommunication(const TaskGroup& group) { return group.movement() != nullptr; }

class ClassFinder {
 public:
  explicit ClassFinder(const PhysicalGraph& graph)
      : graph_(graph),
        consumers_(graph.Consumers()),
        kind_(graph.groups().size(), kNone),
        is_constant_(graph.groups().size(), false),
        depth_(graph.groups().size(), 0),
        is_deferrable_(FindDeferrable(graph)),
        arrival_(graph.groups().size(), kNone) {}

  absl::StatusOr<ChainClasses> Find() {
    BRAID_ASSIGN_OR_RETURN(result_.order, graph_.TopologicalOrder());
    FindKinds();
    for (GroupId id : result_.order) {
      FindDepth(id);
      FindConstant(id);
    }
    for (auto id = result_.order.rbegin(); id != result_.order.rend(); ++id) Sink(*id);
    FindArrivals();
    BRAID_ASSIGN_OR_RETURN(const ActPhases phases, FindActPhases(graph_));
    std::map<std::tuple<int, int, int, int>, size_t> class_of;  // kind, depth, arrival, phase
    for (GroupId id : result_.order) {
      if (kind_[id] == kNone) continue;
      const auto [it, is_new] = class_of.try_emplace(
          {kind_[id], depth_[id], arrival_[id], phases.of[id]}, result_.members.size());
      if (is_new) result_.members.emplace_back();
      result_.members[it->second].push_back(id);
    }
    FindUrgentReaders();
    return std::move(result_);
  }

 private:
  // One number for each (placement, stream, acts).
  void FindKinds() {
    std::map<std::tuple<Placement, StreamKind, int>, int> number;
    for (const TaskGroup& group : graph_.groups()) {
      if (!IsChainable(group)) continue;
      kind_[group.id] = number
                            .try_emplace({group.placement, group.stream, group.acts_per_step},
                                         static_cast<int>(number.size()))
                            .first->second;
    }
  }

  bool IsBreak(const Register& reg, GroupId consumer, int input_period) const {
    return kind_[consumer] == kNone || kind_[reg.producer] != kind_[consumer] || reg.period != 1 ||
           input_period != 1;
  }

  void FindDepth(GroupId id) {
    for (const GroupInput& input : graph_.group(id).inputs) {
      const Register& reg = graph_.reg(input.reg);
      if (reg.initial_tokens != 0) continue;
      depth_[id] =
          std::max(depth_[id], depth_[reg.producer] + (IsBreak(reg, id, input.period) ? 1 : 0));
    }
  }

  void FindConstant(GroupId id) {
    const TaskGroup& group = graph_.group(id);
    is_constant_[id] =
        kind_[id] != kNone &&
        std::all_of(group.inputs.begin(), group.inputs.end(), [this](const GroupInput& input) {
          const Register& reg = graph_.reg(input.reg);
          const bool is_steady =
              !graph_.writes_variables && graph_.group(reg.producer).is<VariableOwner>();
          return reg.initial_tokens == 0 && (is_constant_[reg.producer] || is_steady);
        });
  }

  // The group stands as late as its readers allow, if nothing but constants leads to it.
  void Sink(GroupId id) {
    if (!is_constant_[id]) return;
    const TaskGroup& group = graph_.group(id);
    int latest = std::numeric_limits<int>::max();
    for (GroupRegisterId out : group.outputs) {
      const Register& reg = graph_.reg(out);
      if (reg.initial_tokens != 0) continue;
      for (const auto& [consumer, index] : consumers_[out]) {
        const int period = graph_.group(consumer).inputs[index].period;
        latest = std::min(latest, depth_[consumer] - (IsBreak(reg, consumer, period) ? 1 : 0));
      }
    }
    if (latest != std::numeric_limits<int>::max()) depth_[id] = std::max(depth_[id], latest);
  }

  void FindArrivals() {
    std::vector<int> position(graph_.groups().size());
    for (size_t i = 0; i < result_.order.size(); ++i) {
      position[result_.order[i]] = static_cast<int>(i);
    }
    for (GroupId id : result_.order) {
      if (!is_deferrable_[id]) continue;
      for (const GroupInput& input : graph_.group(id).inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (reg.initial_tokens != 0) continue;
        const bool travels = IsCommunication(graph_.group(reg.producer));
        arrival_[id] =
            std::max(arrival_[id], travels ? position[reg.producer] : arrival_[reg.producer]);
      }
    }
    // Constants arrive with their readers, if these all arrive together.
    for (auto id = result_.order.rbegin(); id != result_.order.rend(); ++id) {
      if (!is_constant_[*id] || !is_deferrable_[*id]) continue;
      std::set<int> arrivals;
      for (GroupRegisterId out : graph_.group(*id).outputs) {
        for (const auto& [consumer, index] : consumers_[out]) arrivals.insert(arrival_[consumer]);
      }
      if (arrivals.size() == 1) arrival_[*id] = *arrivals.begin();
    }
  }

  void FindUrgentReaders() {
    result_.urgent_readers.resize(graph_.groups().size());
    std::vector<bool> is_report(graph_.groups().size(), false);
    for (auto id = result_.order.rbegin(); id != result_.order.rend(); ++id) {
      const TaskGroup& group = graph_.group(*id);
      bool only_reports = true;
      for (GroupRegisterId out : group.outputs) {
        for (const auto& [consumer, index] : consumers_[out]) {
          only_reports = only_reports && is_report[consumer];
          if (IsCommunication(graph_.group(consumer)) && !is_report[consumer]) {
            result_.urgent_readers[*id].push_back(consumer);
          }
        }
      }
      is_report[*id] = only_reports && (group.outputs.empty() || IsCommunication(group));
    }
  }

  const PhysicalGraph& graph_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::vector<int> kind_;
  std::vector<bool> is_constant_;
  std::vector<int> depth_;
  const std::vector<bool> is_deferrable_;
  std::vector<int> arrival_;
  ChainClasses result_;
};

}  // namespace

absl::StatusOr<ChainClasses> FindChainClasses(const PhysicalGraph& graph) {
  return ClassFinder(graph).Find();
}

}  // namespace braid::compiler
