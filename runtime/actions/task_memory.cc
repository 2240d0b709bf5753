#include "runtime/actions/task_memory.h"

#include <string>
#include <variant>

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
    Device& device = *(*devices_)[arena.device];
    uint64_t bytes = arena.bytes;
    for (const uint64_t scratch : arena.scratch_bytes) bytes += scratch;
    RETURN_IF_ERROR(device.GrowArena(MemoryKind::kOwn, bytes));
    RETURN_IF_ERROR(device.GrowArena(MemoryKind::kPinned, arena.pinned_bytes));
    std::byte* at = device.arena(MemoryKind::kOwn).data() + arena.bytes;
    for (size_t stream = 0; stream < arena.scratch_bytes.size(); ++stream) {
      scratch_[{arena.device, static_cast<StreamKind>(stream)}] = at;
      at += arena.scratch_bytes[stream];
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SlotMemory> PlanMemory::Of(const plan::Memory& memory) const {
  if (memory.device >= devices_->size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "memory on device %d of this node, which has %d", memory.device, devices_->size()));
  }
  return SlotMemory{(*devices_)[memory.device]->arena(memory.kind).data() + memory.offset,
                    memory.stride};
}

absl::StatusOr<TaskMemory> PlanMemory::Of(const plan::Task& task) const {
  TaskMemory memory;
  for (const plan::Input& input : task.inputs) {
    SlotMemory& slots = memory.inputs.emplace_back();
    if (input.memory.has_value()) {
      ASSIGN_OR_RETURN(slots, Of(*input.memory));
    }
  }
  const bool is_elsewhere = std::holds_alternative<plan::Transfer>(task.work);
  for (const plan::Output& output : task.outputs) {
    SlotMemory& slots = memory.outputs.emplace_back();
    if (output.memory.has_value() && !is_elsewhere) {
      ASSIGN_OR_RETURN(slots, Of(*output.memory));
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
