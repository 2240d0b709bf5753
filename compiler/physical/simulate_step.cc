#include "compiler/physical/simulate_step.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace braid::compiler {

StepSimulation::StepSimulation(const PhysicalGraph& graph)
    : graph_(graph), registers_(graph.registers().size()), groups_(graph.groups().size()) {
  for (const TaskGroup& group : graph.groups()) {
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      registers_[group.inputs[i].reg].consumers.push_back({group.id, static_cast<int>(i)});
    }
  }
  for (const Register& reg : graph.registers()) {
    RegisterState& state = registers_[reg.id];
    state.slots = reg.slots;
    state.sent = reg.initial_tokens;
    state.readers_left.assign(reg.initial_tokens, static_cast<int>(state.consumers.size()));
  }
  for (const TaskGroup& group : graph.groups()) {
    GroupState& state = groups_[group.id];
    state.inputs.resize(group.inputs.size());
    for (const GroupInput& input : group.inputs) {
      if (registers_[input.reg].sent == 0) ++state.missing;
    }
    for (GroupRegisterId reg : group.outputs) {
      if (!IsFree(registers_[reg])) ++state.missing;
    }
  }
  for (const TaskGroup& group : graph.groups()) Queue(group.id);
}

void StepSimulation::Queue(GroupId id) {
  GroupState& state = groups_[id];
  if (state.missing > 0 || state.is_queued || state.acts >= graph_.group(id).acts_per_step) return;
  state.is_queued = true;
  queue_.push_back(id);
}

void StepSimulation::Act(GroupId id) {
  const TaskGroup& group = graph_.group(id);
  GroupState& state = groups_[id];
  if (++state.acts == group.acts_per_step) ++done_;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    InputState& input = state.inputs[i];
    if (++input.uses < group.inputs[i].period) continue;
    input.uses = 0;
    RegisterState& reg = registers_[group.inputs[i].reg];
    const bool was_free = IsFree(reg);
    --reg.readers_left[input.consumed++];
    if (input.consumed == reg.sent) ++state.missing;
    const GroupId producer = graph_.reg(group.inputs[i].reg).producer;
    if (was_free || !IsFree(reg)) continue;
    --groups_[producer].missing;
    Queue(producer);
  }
  for (GroupRegisterId output : group.outputs) {
    RegisterState& reg = registers_[output];
    if (++reg.fills < graph_.reg(output).period) continue;
    reg.fills = 0;
    reg.readers_left.push_back(static_cast<int>(reg.consumers.size()));
    ++reg.sent;
    if (!IsFree(reg)) ++state.missing;
    for (const End& end : reg.consumers) {
      if (groups_[end.group].inputs[end.index].consumed + 1 != reg.sent) continue;
      --groups_[end.group].missing;
      Queue(end.group);
    }
  }
  // It counts as queued until all its ends are counted: what it tells itself must not queue it.
  state.is_queued = false;
  Queue(id);
}

bool StepSimulation::Run() {
  for (size_t next = 0; next < queue_.size(); ++next) {
    const GroupId id = queue_[next];
    Act(id);
  }
  queue_.clear();
  return done_ == groups_.size();
}

void StepSimulation::AddSlot(GroupRegisterId id) {
  RegisterState& reg = registers_[id];
  const bool was_free = IsFree(reg);
  ++reg.slots;
  if (was_free || !IsFree(reg)) return;
  const GroupId producer = graph_.reg(id).producer;
  --groups_[producer].missing;
  Queue(producer);
}

StepSimulation::Wait StepSimulation::WaitOf(GroupId id) const {
  const TaskGroup& group = graph_.group(id);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const GroupRegisterId reg = group.inputs[i].reg;
    if (groups_[id].inputs[i].consumed == registers_[reg].sent) {
      return {id, reg, false, graph_.reg(reg).producer};
    }
  }
  for (GroupRegisterId output : group.outputs) {
    const RegisterState& reg = registers_[output];
    if (IsFree(reg)) continue;
    for (const End& end : reg.consumers) {
      if (groups_[end.group].inputs[end.index].consumed <= reg.sent - reg.slots) {
        return {id, output, true, end.group};
      }
    }
  }
  LOG(FATAL) << "group " << group.name << " waits for nothing";
}

std::vector<StepSimulation::Wait> StepSimulation::FindCycle() const {
  GroupId id = 0;
  while (groups_[id].acts == graph_.group(id).acts_per_step) ++id;
  std::vector<int> place(groups_.size(), -1);
  std::vector<Wait> walk;
  while (place[id] < 0) {
    place[id] = static_cast<int>(walk.size());
    walk.push_back(WaitOf(id));
    id = walk.back().on;
    CHECK_LT(groups_[id].acts, graph_.group(id).acts_per_step)
        << graph_.group(id).name << " has done its acts; acts and periods are not balanced";
  }
  walk.erase(walk.begin(), walk.begin() + place[id]);
  return walk;
}

std::string DescribeWaits(const PhysicalGraph& graph, const StepSimulation& simulation,
                          const std::vector<StepSimulation::Wait>& waits) {
  std::string text;
  for (const StepSimulation::Wait& wait : waits) {
    const std::string& reg = graph.reg(wait.reg).name;
    absl::StrAppend(&text, text.empty() ? "" : "\n", "  ", DescribeGroup(graph, wait.group));
    if (wait.for_slot) {
      absl::StrAppend(&text, " waits until ", DescribeGroup(graph, wait.on),
                      " gives back a slot of register '", reg, "', which has ",
                      simulation.slots(wait.reg));
    } else {
      absl::StrAppend(&text, " waits for register '", reg, "' of ", DescribeGroup(graph, wait.on));
    }
  }
  return text;
}

}  // namespace braid::compiler
