#include "runtime/actions/task_memory.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/variable_store.h"

namespace braid {

absl::Status PlanMemory::Prepare(const plan::NodePlan& plan) {
  for (const plan::Arena& arena : plan.arenas) {
    if (arena.device >= devices_->size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the plan of job '%s' uses device %d of node %d, which has %d", plan.job,
                          arena.device, plan.node, devices_->size()));
    }
    BRAID_RETURN_IF_ERROR(PrepareArena(arena, *(*devices_)[arena.device]));
  }
  return absl::OkStatus();
}

// Scratch areas lie behind the registers, in the memory in which their streams work.
absl::Status PlanMemory::PrepareArena(const plan::Arena& arena, Device& device) {
  for (const MemoryKind kind : {MemoryKind::kOwn, MemoryKind::kPinned}) {
    const uint64_t registers = kind == MemoryKind::kPinned ? arena.pinned_bytes : arena.bytes;
    std::vector<std::pair<StreamKind, uint64_t>> areas;
    uint64_t end = registers;
    for (size_t i = 0; i < arena.scratch_bytes.size(); ++i) {
      const auto stream = static_cast<StreamKind>(i);
      const bool is_pinned = IsHostStream(stream) && !device.is_host();
      if (is_pinned != (kind == MemoryKind::kPinned)) continue;
      areas.emplace_back(stream, end);
      end += arena.scratch_bytes[i];
    }
    BRAID_RETURN_IF_ERROR(device.GrowArena(kind, end));
    for (const auto& [stream, offset] : areas) {
      scratch_[{arena.device, stream}] = device.arena(kind).data() + offset;
    }
  }
  if (arena.kept_bytes > 0) {
    BRAID_ASSIGN_OR_RETURN(kept_[arena.device],
                           device.Allocate(MemoryKind::kOwn, arena.kept_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<SlotMemory> PlanMemory::Of(const plan::Memory& memory) const {
  if (memory.device >= devices_->size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "memory on device %d of this node, which has %d", memory.device, devices_->size()));
  }
  return SlotMemory{(*devices_)[memory.device]->arena(memory.kind).data() + memory.offset,
                    memory.bytes, memory.stride};
}

absl::StatusOr<TaskMemory> PlanMemory::Of(const plan::Task& task) const {
  TaskMemory memory;
  for (const plan::Input& input : task.inputs) {
    SlotMemory& slots = memory.inputs.emplace_back();
    if (input.memory.has_value()) {
      BRAID_ASSIGN_OR_RETURN(slots, Of(*input.memory));
    }
  }
  const bool is_elsewhere = std::holds_alternative<plan::Transfer>(task.work);
  for (const plan::Output& output : task.outputs) {
    SlotMemory& slots = memory.outputs.emplace_back();
    if (output.memory.has_value() && !is_elsewhere) {
      BRAID_ASSIGN_OR_RETURN(slots, Of(*output.memory));
    }
  }
  return memory;
}

absl::StatusOr<OperandAddress> PlanMemory::AddressOf(const plan::Task& task,
                                                     const plan::Operand& operand) const {
  OperandAddress address;
  address.index = operand.index;
  address.offset = operand.offset;
  size_t ends = 0;
  switch (operand.source) {
    case plan::Operand::Source::kInput:
      address.kind = OperandAddress::Kind::kInput;
      ends = task.inputs.size();
      break;
    case plan::Operand::Source::kOutput:
      address.kind = OperandAddress::Kind::kOutput;
      ends = task.outputs.size();
      break;
    case plan::Operand::Source::kScratch: {
      const auto found = scratch_.find({task.device, task.stream});
      if (found == scratch_.end()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "task '%s' works in scratch of device %d, which has no arena", task.name, task.device));
      }
      address.fixed = found->second + operand.offset;
      break;
    }
    case plan::Operand::Source::kKept: {
      const auto found = kept_.find(task.device);
      if (found == kept_.end()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "task '%s' uses what is kept on device %d, where nothing is", task.name, task.device));
      }
      address.fixed = found->second.data() + operand.offset;
      break;
    }
    case plan::Operand::Source::kVariable:
      address.fixed =
          variables_->Find(static_cast<int>(operand.index), std::string(operand.variable));
      if (address.fixed == nullptr) {
        return absl::InternalError(
            absl::StrFormat("task '%s' reads variable '%s', which no task of device %d owns",
                            task.name, operand.variable, operand.index));
      }
      break;
  }
  if (address.kind != OperandAddress::Kind::kFixed && operand.index >= ends) {
    return absl::InvalidArgumentError(
        absl::StrFormat("task '%s': operand of end %d, it has %d", task.name, operand.index, ends));
  }
  return address;
}

}  // namespace braid
