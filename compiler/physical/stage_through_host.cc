#include "compiler/physical/stage_through_host.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace braid::compiler {
namespace {

MemoryKind MemoryOf(const TaskGroup& group) {
  return IsHostStream(group.stream) ? MemoryKind::kPinned : MemoryKind::kOwn;
}

// The same bytes in the other memory, and the group that copies them there.
GroupRegisterId AddStaging(GroupRegisterId id, PhysicalGraph& graph) {
  const Register from = graph.reg(id);
  const bool goes_out = from.memory == MemoryKind::kOwn;
  Register to;
  to.name = absl::StrCat(from.name, goes_out ? ".to_host" : ".to_device");
  to.placement = from.placement;
  to.parts = from.parts;
  for (Part& part : to.parts) part.variable.clear();
  to.producer = static_cast<GroupId>(graph.groups().size());
  to.memory = goes_out ? MemoryKind::kPinned : MemoryKind::kOwn;
  const GroupRegisterId copy = graph.AddRegister(std::move(to)).id;

  const TaskGroup& producer = graph.group(from.producer);
  TaskGroup staging;
  staging.work = Staging{};
  staging.name = graph.reg(copy).name;
  staging.placement = from.placement;
  staging.stream = goes_out ? StreamKind::kCopyOut : StreamKind::kCopyIn;
  staging.acts_per_step = producer.acts_per_step / from.period;
  staging.inputs.push_back({.reg = id});
  staging.outputs.push_back(copy);
  staging.location = producer.location;
  graph.AddGroup(std::move(staging));
  return copy;
}

}  // namespace

PhysicalGraph StageThroughHost(PhysicalGraph graph) {
  const std::vector<std::vector<std::pair<GroupId, int>>> consumers = graph.Consumers();
  for (GroupRegisterId id = 0; id < static_cast<GroupRegisterId>(consumers.size()); ++id) {
    if (graph.reg(id).is_control() || graph.kinds.AreHost(graph.reg(id).placement)) continue;
    const MemoryKind memory = MemoryOf(graph.group(graph.reg(id).producer));
    graph.reg(id).memory = memory;
    GroupRegisterId copy = kNone;
    for (const auto& [consumer, input] : consumers[id]) {
      if (MemoryOf(graph.group(consumer)) == memory) continue;
      if (copy == kNone) copy = AddStaging(id, graph);
      graph.group(consumer).inputs[input].reg = copy;
    }
  }
  return graph;
}

}  // namespace braid::compiler
