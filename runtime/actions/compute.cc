#include "runtime/actions/compute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

std::vector<GroupedCall> GroupedCallsOf(const std::vector<ComputeCall>& calls) {
  std::vector<GroupedCall> grouped;
  for (const ComputeCall& call : calls) {
    grouped.push_back({call.kernel.get(), call.grouped_inputs, call.grouped_outputs});
  }
  return grouped;
}

}  // namespace

ComputeAction::ComputeAction(TaskMemory memory, std::vector<ComputeCall> calls,
                             uint32_t acts_per_step, const int64_t* first_step)
    : memory_(std::move(memory)),
      calls_(std::move(calls)),
      groups_(GroupedCallsOf(calls_)),
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
    for (const OperandAddress& operand : call.inputs) add(operand);
    for (const OperandAddress& operand : call.outputs) add(operand);
  }
}

bool ComputeAction::Move(uint32_t end, std::byte* slot) {
  if (current_[end] == slot) return false;
  current_[end] = slot;
  for (const Moving& moving : moving_[end]) pointers_[moving.pointer] = slot + moving.offset;
  return true;
}

int64_t ComputeAction::memory_bytes() const {
  int64_t bytes = 0;
  for (const ComputeCall& call : calls_) bytes += call.kernel->memory_bytes();
  return bytes;
}

int64_t ComputeAction::shared_bytes() const {
  int64_t bytes = 0;
  for (const ComputeCall& call : calls_) bytes = std::max(bytes, call.kernel->shared_bytes());
  return bytes;
}

std::string ComputeAction::RunningCall() const {
  if (calls_.empty()) return "";
  const ComputeCall& call = calls_[running_.load(std::memory_order_relaxed)];
  return call.location.empty() ? call.name : absl::StrFormat("%s (%s)", call.name, call.location);
}

void ComputeAction::Start(const Act& act, ActDone done) {
  bool has_moved = !is_placed_;
  for (uint32_t i = 0; i < memory_.inputs.size(); ++i) {
    has_moved = Move(i, memory_.inputs[i].At(act.input_slots[i])) || has_moved;
  }
  const auto num_inputs = static_cast<uint32_t>(memory_.inputs.size());
  for (uint32_t i = 0; i < memory_.outputs.size(); ++i) {
    has_moved = Move(num_inputs + i, memory_.outputs[i].At(act.output_slots[i])) || has_moved;
  }
  if (has_moved) groups_.Place(pointers_.data());
  is_placed_ = true;
  for (size_t i = 0; i < calls_.size(); i = groups_.end(i)) {
    if (groups_.end(i) > i + 1) {
      RunGroup(i, act);
      continue;
    }
    running_.store(i, std::memory_order_relaxed);
    if (absl::Status status = calls_[i].kernel->Run(RunOf(i, act)); !status.ok()) {
      done(absl::Status(status.code(),
                        absl::StrFormat("%s: %s (%s)", calls_[i].name,
                                        std::string(status.message()), calls_[i].location)));
      return;
    }
  }
  done(absl::OkStatus());
}

KernelRun ComputeAction::RunOf(size_t call, const Act& act) const {
  KernelRun run;
  run.step = *first_step_ + act.index / acts_per_step_;
  run.micro_batch = act.index % acts_per_step_;
  run.inputs = pointers_.data() + groups_.first_pointer(call);
  run.outputs = run.inputs + calls_[call].inputs.size();
  return run;
}

void ComputeAction::RunGroup(size_t begin, const Act& act) {
  const size_t end = groups_.end(begin);
  const int64_t all = groups_.size(begin), part = groups_.part(begin);
  for (int64_t at = 0; at < all; at += part) {
    for (size_t i = begin; i < end; ++i) {
      running_.store(i, std::memory_order_relaxed);
      calls_[i].kernel->RunPart(RunOf(i, act), at, std::min(part, all - at));
    }
    // A kernel adds its part's begin to each of its pointers.
    MoveStaying(begin, at + part < all ? -part : at);
  }
}

void ComputeAction::MoveStaying(size_t begin, int64_t elements) {
  for (size_t i = groups_.first_pointer(begin); i < groups_.first_pointer(groups_.end(begin));
       ++i) {
    const int64_t element = groups_.staying(i);
    if (element != 0) pointers_[i] = static_cast<std::byte*>(pointers_[i]) + elements * element;
  }
}

}  // namespace braid
