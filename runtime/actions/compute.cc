#include "runtime/actions/compute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "runtime/actions/fuse_calls.h"
#include "runtime/actions/make_action.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

// What is kept is not made in each act, and what takes turns is a CPU's.
std::vector<bool> AreRepeatable(const std::vector<ComputeCall>& calls, bool take_turns) {
  std::vector<bool> are;
  for (const ComputeCall& call : calls) {
    are.push_back(!take_turns && !call.is_kept && call.kernel->is_repeatable());
  }
  return are;
}

// By call: the end of the calls from it on whose kernels join one another.
std::vector<size_t> EndsOfJoined(const std::vector<ComputeCall>& calls,
                                 const std::vector<CallTurns>& turns) {
  std::vector<size_t> ends(calls.size());
  for (size_t i = calls.size(); i > 0; --i) {
    const size_t call = i - 1;
    const bool joins = i < calls.size() && turns.empty() && !calls[call].is_kept &&
                       !calls[i].is_kept && calls[call].kernel->joins(*calls[i].kernel);
    ends[call] = joins ? ends[i] : i;
  }
  return ends;
}

}  // namespace

ComputeAction::ComputeAction(TaskMemory memory, ComputeWork work, const Options& options)
    : memory_(std::move(memory)),
      calls_(std::move(work.calls)),
      turns_(std::move(work.turns)),
      seen_(calls_.size(), 0),
      together_(EndsOfJoined(calls_, turns_)),
      moving_(memory_.inputs.size() + memory_.outputs.size()),
      current_(moving_.size(), nullptr),
      options_(options),
      captured_(options_.stream, AreRepeatable(calls_, !turns_.empty())),
      reads_step_(std::ranges::any_of(
          calls_, [](const ComputeCall& call) { return call.kernel->reads_step(); })) {
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

KernelMemory ComputeAction::kernel_memory() const {
  KernelMemory all;
  for (const ComputeCall& call : calls_) all.Add(call.memory);
  return all;
}

std::string ComputeAction::RunningCall() const {
  if (calls_.empty()) return "";
  const WorkName& name = calls_[running_.load(std::memory_order_relaxed)].name;
  return name.location.empty() ? name.what : absl::StrFormat("%s (%s)", name.what, name.location);
}

void ComputeAction::Start(const Act& act, ActDone done) {
  for (uint32_t i = 0; i < memory_.inputs.size(); ++i) {
    Move(i, memory_.inputs[i].At(act.input_slots[i]));
  }
  if (options_.first_lane.has_value()) {
    const uint32_t end = *options_.first_lane + static_cast<uint32_t>(act.lane);
    Move(*options_.first_lane, memory_.inputs[end].At(act.input_slots[end]));
  }
  const auto num_inputs = static_cast<uint32_t>(memory_.inputs.size());
  for (uint32_t i = 0; i < memory_.outputs.size(); ++i) {
    Move(num_inputs + i, memory_.outputs[i].At(act.output_slots[i]));
  }
  absl::Status status = CatchExceptions("it", [&] { return RunCalls(act); });
  if (!status.ok()) {
    const absl::Status named = NameFailure(calls_[running_].name, status);
    status = absl::Status(
        named.code(), absl::StrFormat("on %s, %s", options_.device, std::string(named.message())));
  }
  done(status);
}

absl::Status ComputeAction::RunCalls(const Act& act) {
  const uint64_t variables = VariablesIn(act);
  auto turns = turns_.begin();
  for (size_t i = 0; i < calls_.size();) {
    if (turns != turns_.end() && turns->begin == i) {
      RunTurns(*turns, act);
      i = turns++->end;
      continue;
    }
    if (CapturedCalls::Range* const range = captured_.At(i)) {
      BRAID_RETURN_IF_ERROR(RunCaptured(*range, act, variables));
      i = range->end;
      continue;
    }
    BRAID_RETURN_IF_ERROR(RunNext(i, act, variables));
  }
  return absl::OkStatus();
}

absl::Status ComputeAction::RunNext(size_t& next, const Act& act, uint64_t variables) {
  const size_t call = next;
  next = together_[call];
  if (next > call + 1) return RunTogether(call, next, act);
  const bool is_unchanged = variables != 0 && std::exchange(seen_[call], variables) == variables;
  if (is_unchanged && calls_[call].is_kept) return absl::OkStatus();
  Begin(call);
  KernelRun run = RunOf(call, act);
  if (is_unchanged) run.unchanged_inputs = calls_[call].steady_inputs;
  return calls_[call].kernel->Run(run);
}

absl::Status ComputeAction::RunTogether(size_t begin, size_t end, const Act& act) {
  Begin(begin);
  std::vector<Kernel*> kernels;
  std::vector<KernelRun> runs;
  for (size_t i = begin; i < end; ++i) {
    kernels.push_back(calls_[i].kernel.get());
    runs.push_back(RunOf(i, act));
  }
  return kernels[0]->RunTogether(kernels, runs);
}

absl::Status ComputeAction::RunCaptured(CapturedCalls::Range& range, const Act& act,
                                        uint64_t variables) {
  // What is launched at once is, for reports, all calls from the first to the last.
  Begin(range.begin);
  if (reads_step_) options_.stream->SetStep(StepOf(act));
  const auto run = [&] {
    for (size_t i = range.begin; i < range.end;) {
      BRAID_RETURN_IF_ERROR(RunNext(i, act, variables));
    }
    return absl::OkStatus();
  };
  const CapturedCalls::Act operands = {.addresses = current_,
                                       .micro_batch = act.index % options_.acts_per_step};
  BRAID_RETURN_IF_ERROR(captured_.Run(range, operands, run));
  Begin(range.end - 1);
  return absl::OkStatus();
}

void ComputeAction::Begin(size_t call) {
  running_.store(call, std::memory_order_relaxed);
  if (options_.is_queued) options_.stream->SetName(&calls_[call].name);
}

int64_t ComputeAction::StepOf(const Act& act) const {
  return *options_.first_step + act.index / options_.acts_per_step;
}

KernelRun ComputeAction::RunOf(size_t call, const Act& act) const {
  KernelRun run;
  run.stream = options_.stream;
  run.step = StepOf(act);
  run.micro_batch = act.index % options_.acts_per_step;
  run.lane = act.lane;
  run.inputs = pointers_.data() + first_pointer_[call];
  run.outputs = run.inputs + calls_[call].inputs.size();
  return run;
}

uint64_t ComputeAction::VariablesIn(const Act& act) const {
  // Of a job that writes them they stay the same within a step. Acts are never counted twice.
  return options_.variables_epoch != nullptr
             ? options_.variables_epoch->load(std::memory_order_acquire)
             : static_cast<uint64_t>(act.index / options_.acts_per_step) + 1;
}

void ComputeAction::RunTurns(const CallTurns& turns, const Act& act) {
  for (int64_t at = 0; at < turns.elements; at += turns.part) {
    for (size_t i = turns.begin; i < turns.end; ++i) {
      Begin(i);
      calls_[i].kernel->RunPart(RunOf(i, act), at, std::min(turns.part, turns.elements - at));
    }
    // A kernel adds its part's begin to each of its pointers.
    MoveStaying(turns, at + turns.part < turns.elements ? -turns.part : at);
  }
}

void ComputeAction::MoveStaying(const CallTurns& turns, int64_t elements) {
  for (const StayingOperand& staying : turns.staying) {
    void*& pointer = pointers_[staying.operand];
    pointer = static_cast<std::byte*>(pointer) + elements * staying.element_bytes;
  }
}

namespace {

// The input that is lane 0's, if the task has lanes. Kernels name that, and an act for another lane
// finds that lane's in its place: they stand one after another, and hold equally much.
absl::StatusOr<std::optional<uint32_t>> FirstLane(const plan::Task& task) {
  const auto is_of_lane = [](const plan::Input& input) { return input.lane != kNoLane; };
  const auto first = std::ranges::find_if(task.inputs, is_of_lane);
  if (first == task.inputs.end() && task.lanes == 0) return std::nullopt;
  bool is_right = task.inputs.end() - first >= int64_t{task.lanes} &&
                  std::ranges::count_if(task.inputs, is_of_lane) == int64_t{task.lanes};
  for (uint32_t lane = 0; is_right && lane < task.lanes; ++lane) {
    const plan::Input& input = first[lane];
    is_right = input.lane == static_cast<int32_t>(lane) && input.memory.has_value() &&
               input.memory->bytes == first->memory->bytes;
  }
  if (is_right) return static_cast<uint32_t>(first - task.inputs.begin());
  return absl::InvalidArgumentError(
      absl::StrFormat("task '%s' has %d lanes, and other inputs than one for each, of equal bytes",
                      task.name, task.lanes));
}

}  // namespace

absl::StatusOr<MadeAction> MakeAction(const plan::Compute& compute, ActionContext& context) {
  const plan::Task& task = context.task;
  std::vector<ComputeCall>& calls = context.calls;
  CHECK_EQ(calls.size(), compute.kernels.size()) << "task '" << task.name << "' and its kernels";
  for (size_t i = 0; i < calls.size(); ++i) {
    const plan::Kernel& kernel = compute.kernels[i];
    for (const plan::Operand& operand : kernel.inputs) {
      BRAID_ASSIGN_OR_RETURN(calls[i].inputs.emplace_back(),
                             context.addresses.AddressOf(task, operand));
    }
    for (const plan::Operand& operand : kernel.outputs) {
      BRAID_ASSIGN_OR_RETURN(calls[i].outputs.emplace_back(),
                             context.addresses.AddressOf(task, operand));
    }
    calls[i].steady_inputs = context.variable_use->SteadyInputs(kernel, context.device.kernels());
    calls[i].is_kept = !kernel.outputs.empty() &&
                       std::ranges::all_of(kernel.outputs, [](const plan::Operand& output) {
                         return output.source == plan::Operand::Source::kKept;
                       });
  }
  BRAID_ASSIGN_OR_RETURN(const std::optional<uint32_t> first_lane, FirstLane(task));
  std::vector<Kernel*> kernels;
  for (const ComputeCall& call : calls) kernels.push_back(call.kernel.get());
  std::vector<CallTurns> turns = TurnsOf(compute, kernels);
  CallFuser* const fuser = context.device.call_fuser();
  if (fuser != nullptr && turns.empty() && !IsHostStream(task.stream)) {
    FuseCalls(compute, *fuser, calls);
  }
  auto action = std::make_unique<ComputeAction>(
      std::move(context.memory), ComputeWork{.calls = std::move(calls), .turns = std::move(turns)},
      ComputeAction::Options{
          .acts_per_step = task.acts_per_step,
          .first_step = context.first_step,
          .stream = &context.stream(),
          .is_queued = !context.device.is_host(),
          .device = absl::StrFormat("%s %d", context.device.kind(), context.device.index()),
          .variables_epoch = context.variable_use->writes() ? nullptr : context.variables_epoch,
          .first_lane = first_lane});
  MadeAction made;
  made.compute = action.get();
  made.action = std::move(action);
  return made;
}

}  // namespace braid
