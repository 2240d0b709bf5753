#include "compiler/physical/act_phases.h"

#include <algorithm>

#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

class PhaseFinder {
 public:
  PhaseFinder(const PhysicalGraph& graph, std::vector<GroupId> topological)
      : graph_(graph),
        topological_(std::move(topological)),
        consumers_(graph.Consumers()),
        phase_(graph.groups().size(), 0) {}

  ActPhases Find() {
    RaiseAfterProducers();
    const int end = *std::max_element(phase_.begin(), phase_.end());
    int last = 0;
    for (const TaskGroup& group : graph_.groups()) {
      if (IsOfActs(group)) last = std::max(last, phase_[group.id]);
    }
    phase_ = FindLatest(end);
    for (const TaskGroup& group : graph_.groups()) {
      if (IsOfActs(group)) phase_[group.id] = std::min(last, phase_[group.id]);
    }
    RaiseAfterProducers();
    return {std::move(phase_), last};
  }

 private:
  // The acts of an asynchronous server are no micro-batches.
  static bool IsOfActs(const TaskGroup& group) {
    return group.acts_per_step > 1 && group.lanes() == 0;
  }

  bool WaitsForAll(const Register& reg) const {
    const TaskGroup& producer = graph_.group(reg.producer);
    return reg.period > 1 && IsOfActs(producer) && producer.acts_per_step == reg.period;
  }

  void RaiseAfterProducers() {
    for (GroupId id : topological_) {
      for (const GroupInput& input : graph_.group(id).inputs) {
        const Register& reg = graph_.reg(input.reg);
        if (reg.initial_tokens > 0) continue;
        phase_[id] = std::max(phase_[id], phase_[reg.producer] + (WaitsForAll(reg) ? 1 : 0));
      }
    }
  }

  // By group: what its readers, and theirs, allow.
  std::vector<int> FindLatest(int end) const {
    std::vector<int> latest(phase_.size(), end);
    for (auto id = topological_.rbegin(); id != topological_.rend(); ++id) {
      for (GroupRegisterId out : graph_.group(*id).outputs) {
        const Register& reg = graph_.reg(out);
        if (reg.initial_tokens > 0) continue;
        for (const auto& [consumer, input] : consumers_[out]) {
          latest[*id] = std::min(latest[*id], latest[consumer] - (WaitsForAll(reg) ? 1 : 0));
        }
      }
    }
    return latest;
  }

  const PhysicalGraph& graph_;
  const std::vector<GroupId> topological_;
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers_;
  std::vector<int> phase_;  // by group
};

}  // namespace

absl::StatusOr<ActPhases> FindActPhases(const PhysicalGraph& graph) {
  if (graph.groups().empty()) return ActPhases{};
  BRAID_ASSIGN_OR_RETURN(std::vector<GroupId> topological, graph.TopologicalOrder());
  return PhaseFinder(graph, std::move(topological)).Find();
}

}  // namespace braid::compiler
