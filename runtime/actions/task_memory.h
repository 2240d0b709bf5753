// Where one task's operands lie on this node: addresses that are fixed when a plan is loaded, but
// for the slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/plan/node_plan.h"
#include "runtime/device/device.h"

namespace braid {

class VariableStore;

// A register's slots; base is null for a control edge.
struct SlotMemory {
  std::byte* base = nullptr;
  uint64_t bytes = 0;  // of a slot
  uint64_t stride = 0;
  std::byte* At(uint32_t slot) const { return base + slot * stride; }
};

// An operand's bytes: at a fixed address, or at an offset in a slot of an input or output.
struct OperandAddress {
  enum class Kind : uint8_t { kFixed, kInput, kOutput };
  Kind kind = Kind::kFixed;
  uint32_t index = 0;  // of the input or output
  std::byte* fixed = nullptr;
  uint64_t offset = 0;
};

struct TaskMemory {
  std::vector<SlotMemory> inputs, outputs;  // in the order of the task's

  std::byte* Locate(const OperandAddress& operand, const uint32_t* input_slots,
                    const uint32_t* output_slots) const {
    switch (operand.kind) {
      case OperandAddress::Kind::kFixed:
        return operand.fixed;
      case OperandAddress::Kind::kInput:
        return inputs[operand.index].At(input_slots[operand.index]) + operand.offset;
      case OperandAddress::Kind::kOutput:
        return outputs[operand.index].At(output_slots[operand.index]) + operand.offset;
    }
    return nullptr;
  }
};

// From the plan's offsets to addresses in the devices' arenas and in the variable store.
class PlanMemory {
 public:
  // Borrowed.
  PlanMemory(const Devices* devices, const VariableStore* variables)
      : devices_(devices), variables_(variables) {}

  // Grows the arenas to what the plan needs, and takes memory for what the job keeps.
  absl::Status Prepare(const plan::NodePlan& plan);

  absl::StatusOr<SlotMemory> Of(const plan::Memory& memory) const;
  // Of all ends of a task; of a transfer's outputs, which lie on another node, none.
  absl::StatusOr<TaskMemory> Of(const plan::Task& task) const;
  absl::StatusOr<OperandAddress> AddressOf(const plan::Task& task,
                                           const plan::Operand& operand) const;

 private:
  absl::Status PrepareArena(const plan::Arena& arena, Device& device);

  const Devices* devices_;
  const VariableStore* variables_;
  std::map<std::pair<uint32_t, StreamKind>, std::byte*> scratch_;  // by device
  std::map<uint32_t, Memory> kept_;                                // by device
};

}  // namespace braid
