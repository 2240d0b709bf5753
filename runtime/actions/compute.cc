#include "runtime/actions/compute.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace braid {

ComputeAction::ComputeAction(TaskMemory memory, std::vector<ComputeCall> calls,
                             uint32_t acts_per_step, const int64_t* first_step)
    : memory_(std::move(memory)),
      calls_(std::move(calls)),
      moving_(memory_.inputs.size() + memory_.outputs.size()),
      current_(moving_.size(), nullptr),
      acts_per_step_(acts_per_step),
      first_step_(first_step) {
  const auto num_inputs = static_cast<uint32_t>(memory_.inputs.size());
  const auto add = [&](const OperandAddress& operand) {
    const auto pointer = static_cast<uint32_t>(pointers_.size());
    pointers_.push_back(operand.fixed);
    if (operand.kind == OperandAddress::Kind::kFixed) return;
    const uint32_t end =
        operand.kind == OperandAddress::Kind::kInput ? operand.index : num_inputs + operand.index;
    moving_[end].push_back({end, pointer, operand.offset});
  };
  for (const ComputeCall& call : calls_) {
    first_pointer_.push_back(pointers_.size());
    for (const OperandAddress& operand : call.inputs) add(operand);
    for (const OperandAddress& operand : call.outputs) add(operand);
  }
}

void ComputeAction::Move(uint32_t end, std::byte* slot) {
  if (current_[end] == slot) return;
  current_[end] = slot;
  for (const Moving& moving : moving_[end]) pointers_[moving.pointer] = slot + moving.offset;
}

std::string ComputeAction::RunningCall() const {
  if (calls_.empty()) return "";
  const ComputeCall& call = calls_[running_.load(std::memory_order_relaxed)];
  return call.location.empty() ? call.name : absl::StrFormat("%s (%s)", call.name, call.location);
}

void ComputeAction::Start(const Act& act, ActDone done) {
  for (uint32_t i = 0; i < memory_.inputs.size(); ++i) {
    Move(i, memory_.inputs[i].At(act.input_slots[i]));
  }
  const auto num_inputs = static_cast<uint32_t>(memory_.inputs.size());
  for (uint32_t i = 0; i < memory_.outputs.size(); ++i) {
    Move(num_inputs + i, memory_.outputs[i].At(act.output_slots[i]));
  }
  KernelRun run;
  run.step = *first_step_ + act.index / acts_per_step_;
  run.micro_batch = act.index % acts_per_step_;
  for (size_t i = 0; i < calls_.size(); ++i) {
    running_.store(i, std::memory_order_relaxed);
    run.inputs = pointers_.data() + first_pointer_[i];
    run.outputs = run.inputs + calls_[i].inputs.size();
    if (absl::Status status = calls_[i].kernel->Run(run); !status.ok()) {
      done(absl::Status(status.code(),
                        absl::StrFormat("%s: %s (%s)", calls_[i].name,
                                        std::string(status.message()), calls_[i].location)));
      return;
    }
  }
  done(absl::OkStatus());
}

}  // namespace braid
