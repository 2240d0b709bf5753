#include "compiler/physical/assign_slots.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/physical/device_sets.h"
#include "compiler/physical/simulate_step.h"
#include "compiler/physical/step_order.h"
#include "runtime/base/status.h"

namespace braid::compiler {
namespace {

bool IsVariable(const Register& reg) {
  return std::any_of(reg.parts.begin(), reg.parts.end(),
                     [](const Part& part) { return !part.variable.empty(); });
}

// How many transfers from one stage's devices to another's lie on the way to each group.
absl::StatusOr<std::vector<int>> StagesBefore(const PhysicalGraph& graph) {
  BRAID_ASSIGN_OR_RETURN(const std::vector<GroupId> order, graph.TopologicalOrder());
  DeviceSets sets;
  std::vector<int> stages(graph.groups().size(), 0);
  for (GroupId id : order) {
    const TaskGroup& group = graph.group(id);
    int stage = 0;
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      if (reg.initial_tokens == 0) stage = std::max(stage, stages[reg.producer]);
    }
    if (group.is<Exchange>() &&
        sets.Intern(graph.reg(group.inputs[0].reg).placement) != sets.Intern(group.placement)) {
      ++stage;
    }
    stages[id] = stage;
  }
  return stages;
}

bool IsMoved(const PhysicalGraph& graph, GroupId id) {
  const TaskGroup& group = graph.group(id);
  return group.movement() != nullptr || group.is<Staging>();
}

// A reader, or what copies its data, which goes ahead of the step as it does.
bool RunsAhead(const PhysicalGraph& graph, const TaskGroup& group) {
  return group.stream == StreamKind::kInput ||
         (group.is<Staging>() &&
          graph.group(graph.reg(group.inputs[0].reg).producer).stream == StreamKind::kInput);
}

// A second slot lets a producer act while its last piece is still read. Where it waits for the
// readers anyway, for instance because what it keeps for the backward pass has one slot, it is
// never used.
absl::Status TakeUnusedSlots(PhysicalGraph& graph) {
  std::vector<StepOrder::Constraint> constraints;
  std::vector<GroupRegisterId> of;
  const auto consumers = graph.Consumers();
  for (const Register& reg : graph.registers()) {
    const bool is_filled_once = graph.group(reg.producer).acts_per_step == reg.period;
    if (reg.slots == 1 || is_filled_once || reg.initial_tokens > 0 || reg.is_control()) continue;
    for (const auto& [consumer, input] : consumers[reg.id]) {
      constraints.push_back(
          {.reader = consumer, .writer = reg.producer, .when = StepOrder::When::kNextAct});
      of.push_back(reg.id);
    }
  }
  if (constraints.empty()) return absl::OkStatus();
  BRAID_ASSIGN_OR_RETURN(const StepOrder order, StepOrder::Make(graph));
  const std::vector<bool> holds = order.Holds(constraints);
  std::vector<bool> may_wait(graph.registers().size(), true);
  for (size_t i = 0; i < of.size(); ++i) may_wait[of[i]] = may_wait[of[i]] && holds[i];
  for (GroupRegisterId id : of) {
    if (may_wait[id]) graph.reg(id).slots = 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PhysicalGraph> AssignSlots(PhysicalGraph graph) {
  graph.LayOutParts();
  BRAID_ASSIGN_OR_RETURN(const std::vector<int> stages, StagesBefore(graph));
  const auto consumers = graph.Consumers();
  for (const Register& known : graph.registers()) {
    Register& reg = graph.reg(known.id);
    const TaskGroup& producer = graph.group(reg.producer);
    const int pieces = producer.acts_per_step / reg.period;
    reg.slots = reg.least_slots;
    if (IsVariable(reg)) continue;
    if (RunsAhead(graph, producer)) reg.slots = 2;
    if (pieces > 1) {
      int needed = IsMoved(graph, reg.producer) ? 2 : 1;
      for (const auto& [consumer, input] : consumers[reg.id]) {
        if (IsMoved(graph, consumer)) needed = std::max(needed, 2);
        const int between = stages[consumer] - stages[reg.producer];
        if (between > 0) needed = std::max(needed, 1 + (between + 1) / 2);
      }
      reg.slots = std::max(reg.slots, std::min(needed, pieces));
    }
    if (reg.is_control()) reg.slots = std::max(reg.slots, reg.initial_tokens + 1);
    reg.slots = std::max(reg.slots, reg.initial_tokens);
  }

  StepSimulation simulation(graph);
  while (!simulation.Run()) {
    const std::vector<StepSimulation::Wait> cycle = simulation.FindCycle();
    GroupRegisterId least = kNone;
    for (const StepSimulation::Wait& wait : cycle) {
      if (!wait.for_slot) continue;
      const auto rank = [&graph](GroupRegisterId id) {
        return std::pair(graph.reg(id).slot_bytes, id);
      };
      if (least == kNone || rank(wait.reg) < rank(least)) least = wait.reg;
    }
    if (least == kNone) {
      return absl::InternalError(
          absl::StrCat("job '", graph.job,
                       "' cannot run, whatever its slots: groups wait for each "
                       "other's data\n",
                       DescribeWaits(graph, simulation, cycle)));
    }
    simulation.AddSlot(least);
  }
  for (const Register& reg : graph.registers()) graph.reg(reg.id).slots = simulation.slots(reg.id);
  BRAID_RETURN_IF_ERROR(TakeUnusedSlots(graph));
  return graph;
}

}  // namespace braid::compiler
