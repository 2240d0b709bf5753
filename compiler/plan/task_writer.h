// What the parts of expand.h write: tasks with their ends, and the memory that these take beside
// what was planned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "compiler/plan/node_plan.h"
#include "compiler/plan/physical_graph.h"
#include "compiler/plan/plan_edges.h"
#include "glog/logging.h"

namespace braid::compiler {

inline uint64_t AlignedBytes(uint64_t bytes) {
  return static_cast<uint64_t>(AlignInArena(static_cast<int64_t>(bytes)));
}

struct TaskWriter {
  TaskWriter(const PhysicalGraph& graph, int node) : graph(graph), node(node), edges(graph) {}

  plan::Task& StartTask(const TaskGroup& group, const TaskKey& key) {
    plan::Task& task = node_plan.tasks.emplace_back();
    task.id = edges.IdOf(key);
    task.name = group.name;
    task.device = static_cast<uint32_t>(edges.DeviceOf(key).device);
    task.stream = group.stream;
    task.acts_per_step = static_cast<uint32_t>(group.acts_per_step);
    task.lanes = static_cast<uint32_t>(group.lanes());
    task.is_deferrable = group.is_deferrable;
    return task;
  }

  static plan::Memory MemoryOf(const Register& reg, int device) {
    CHECK_GE(reg.offset, 0) << "register " << reg.name << " has no place in the arena";
    return {.device = static_cast<uint32_t>(device),
            .kind = reg.memory,
            .offset = static_cast<uint64_t>(reg.offset),
            .bytes = static_cast<uint64_t>(reg.slot_bytes),
            .stride = static_cast<uint64_t>(reg.stride)};
  }

  void AddInput(const Register& reg, const PlanEdges::Source& source, int period, int device,
                plan::Task& task) {
    plan::Input& input = task.inputs.emplace_back();
    input.reg = source.reg;
    input.producer = edges.IdOf(source.producer);
    input.slots = static_cast<uint32_t>(reg.slots);
    input.period = static_cast<uint32_t>(period);
    input.initial_tokens = static_cast<uint32_t>(reg.initial_tokens);
    if (reg.has_memory()) input.memory = MemoryOf(reg, device);
  }

  // `lane`: of a control edge by lanes.
  plan::Output& AddOutput(const Register& reg, const TaskKey& key, plan::Task& task,
                          int lane = kNoLane) {
    plan::Output& output = task.outputs.emplace_back();
    output.reg = edges.RegisterId(reg.id, key.number, std::max(lane, 0));
    output.lane = lane;
    output.slots = static_cast<uint32_t>(reg.slots);
    output.period = lane == kNoLane ? static_cast<uint32_t>(reg.period) : 1;
    output.initial_tokens = static_cast<uint32_t>(reg.initial_tokens);
    if (reg.has_memory()) output.memory = MemoryOf(reg, edges.DeviceOf(key).device);
    return output;
  }

  void AddConsumers(const std::vector<TaskKey>& keys, plan::Output& output) {
    output.consumers.reserve(keys.size());
    for (const TaskKey& key : keys) output.consumers.push_back(edges.IdOf(key));
  }

  // One end of a task: its number among the task's inputs or outputs, and whose memory it is.
  struct End {
    bool is_input = true;
    uint32_t index = 0;
    int device = 0;
  };

  static void SetPart(const Part& part, const End& end, plan::Operand& operand) {
    if (!part.variable.empty()) {
      operand.source = plan::Operand::Source::kVariable;
      operand.variable = part.variable;
      operand.index = static_cast<uint32_t>(end.device);
      return;
    }
    operand.source = end.is_input ? plan::Operand::Source::kInput : plan::Operand::Source::kOutput;
    operand.index = end.index;
    operand.offset = static_cast<uint64_t>(part.offset);
  }

  static uint64_t& BytesIn(plan::Arena& arena, MemoryKind kind) {
    return kind == MemoryKind::kPinned ? arena.pinned_bytes : arena.bytes;
  }

  // At the end of what was taken so far.
  plan::Memory TakeMemory(int device, MemoryKind kind, uint64_t bytes) {
    uint64_t& end = BytesIn(arenas[device], kind);
    const plan::Memory memory{.device = static_cast<uint32_t>(device), .kind = kind, .offset = end};
    end += bytes;
    return memory;
  }

  const PhysicalGraph& graph;
  const int node;
  PlanEdges edges;
  plan::NodePlan node_plan;
  std::map<int, plan::Arena> arenas;  // by device
  std::set<uint32_t> peers;
  std::map<uint32_t, uint64_t> link_bytes;  // by peer
};

}  // namespace braid::compiler
