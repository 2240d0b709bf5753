// PhysicalGraphs built by hand, for the passes that look at acts, slots, edges and bytes, not at
// what kernels compute; and such graphs run by real actors.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/plan/physical_graph.h"

namespace braid::compiler {

inline Placement Cpu(int first, int count) {
  std::vector<DeviceId> devices;
  for (int i = first; i < first + count; ++i) devices.push_back({0, i});
  return Placement("cpu", devices);
}

inline TensorLayout Floats(int64_t n) {
  TensorLayout layout;
  layout.type.dtype = DType::kF32;
  layout.type.shape = Shape({n});
  layout.sbp = NdSbp(std::vector<Sbp>{sbp::B});
  return layout;
}

class GroupGraph {
 public:
  struct GroupOptions {
    int acts_per_step = 1;
    Placement placement = Cpu(0, 1);
    StreamKind stream = StreamKind::kCompute;
    decltype(TaskGroup::work) work = Compute{};
  };
  // A group with one kernel "work" of its own name, at a line of its own.
  GroupId Group(const std::string& name, GroupOptions options) {
    TaskGroup group;
    group.name = name;
    group.acts_per_step = options.acts_per_step;
    group.placement = options.placement;
    group.stream = options.stream;
    group.work = std::move(options.work);
    group.location = {"train.cc", static_cast<int>(graph.groups().size()) + 1};
    if (auto* const compute = std::get_if<Compute>(&group.work)) {
      KernelCall& kernel = compute->kernels.emplace_back();
      kernel.op = "work";
      kernel.name = name;
      kernel.location = group.location;
    }
    return graph.AddGroup(std::move(group)).id;
  }
  GroupId Group(const std::string& name) { return Group(name, GroupOptions{}); }

  struct RegisterOptions {
    int64_t floats = 1024;  // 0: a control edge
    int slots = 1;
    int period = 1;      // of the producer
    int use_period = 1;  // of the consumers
    int tokens = 0;
    std::string variable = {};
  };
  GroupRegisterId Edge(const std::string& name, GroupId producer,
                       const std::vector<GroupId>& consumers, RegisterOptions options) {
    Register reg;
    reg.name = name;
    reg.placement = graph.group(producer).placement;
    reg.producer = producer;
    reg.slots = options.slots;
    reg.period = options.period;
    reg.initial_tokens = options.tokens;
    if (options.floats > 0) {
      Part& part = reg.parts.emplace_back();
      part.layout = Floats(options.floats);
      part.name = name;
      part.variable = options.variable;
    }
    const GroupRegisterId id = graph.AddRegister(std::move(reg)).id;
    const auto add_operand = [&](TaskGroup& group, OperandRef ref, bool is_input) {
      if (!group.is<Compute>() || options.floats == 0) return;
      KernelCall& kernel = group.kernels()[0];
      (is_input ? kernel.inputs : kernel.outputs).push_back(ref);
      (is_input ? kernel.input_layouts : kernel.output_layouts).push_back(Floats(options.floats));
    };
    TaskGroup& from = graph.group(producer);
    from.outputs.push_back(id);
    add_operand(from, {OperandRef::Source::kOutput, static_cast<int>(from.outputs.size()) - 1, 0},
                false);
    for (GroupId consumer : consumers) {
      TaskGroup& to = graph.group(consumer);
      to.inputs.push_back({id, options.use_period});
      add_operand(to, {OperandRef::Source::kInput, static_cast<int>(to.inputs.size()) - 1, 0},
                  true);
      if (auto* const exchange = std::get_if<Exchange>(&to.work)) {
        exchange->movement.source = exchange->movement.destination = Floats(options.floats);
      }
    }
    return id;
  }
  GroupRegisterId Edge(const std::string& name, GroupId producer,
                       const std::vector<GroupId>& consumers) {
    return Edge(name, producer, consumers, RegisterOptions{});
  }

  PhysicalGraph graph;
};

}  // namespace braid::compiler
