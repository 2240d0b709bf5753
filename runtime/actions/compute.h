// The action of a compute task: its kernels, one after another, or part by part together (see
// call_turns.h), in the device's stream. On a CPU they have run when it is done; elsewhere they
// have been queued.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actor/action.h"
#include "runtime/actions/call_turns.h"
#include "runtime/actions/captured_calls.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/stream.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct ComputeCall {
  std::unique_ptr<Kernel> kernel;
  KernelMemory memory;  // what it needs
  std::vector<OperandAddress> inputs, outputs;
  WorkName name;
  uint64_t steady_inputs = 0;  // VariableUse's
  bool is_kept = false;        // all that it makes is kept: it runs when variables have changed
};

struct ComputeWork {
  std::vector<ComputeCall> calls;
  std::vector<CallTurns> turns;  // of these calls, in order
};

class ComputeAction final : public Action {
 public:
  struct Options {
    uint32_t acts_per_step = 1;
    const int64_t* first_step = nullptr;  // the job's at act 0; changes between Runs only
    Stream* stream = nullptr;             // both borrowed
    bool is_queued = false;               // kernels run later: what fails then is to have a name
    std::string device = {};              // "cpu 1", for errors
    // VariableStore's; null if this job itself writes variables, at the end of each step.
    const std::atomic<uint64_t>* variables_epoch = nullptr;
    // Of an asynchronous server: the input that is lane 0's, behind which the others' lie.
    std::optional<uint32_t> first_lane = std::nullopt;
  };
  ComputeAction(TaskMemory memory, ComputeWork work, const Options& options);
  void Start(const Act& act, ActDone done) override;
  // What its kernels keep, and the most that one of them reserves of the stream's work memory.
  KernelMemory kernel_memory() const;
  // "matmul 'fc1' (train.cc:12)": the kernel that runs, or ran last. Any thread.
  std::string RunningCall() const;

 private:
  // An operand whose address follows a slot.
  struct Moving {
    uint32_t end;      // input index, or number of inputs + output index
    uint32_t pointer;  // in pointers_
    uint64_t offset;
  };
  void Move(uint32_t end, std::byte* slot);
  // The call's work is the next in the stream.
  void Begin(size_t call);
  int64_t StepOf(const Act& act) const;
  KernelRun RunOf(size_t call, const Act& act) const;
  // What tells the variables' contents in this act apart from others; 0: nothing does.
  uint64_t VariablesIn(const Act& act) const;
  // In order; running_ is the one that an error is of.
  absl::Status RunCalls(const Act& act);
  // One call, or those that are run together; `call` is then the one after.
  absl::Status RunNext(size_t& call, const Act& act, uint64_t variables);
  absl::Status RunTogether(size_t begin, size_t end, const Act& act);
  absl::Status RunCaptured(CapturedCalls::Range& range, const Act& act, uint64_t variables);
  void RunTurns(const CallTurns& turns, const Act& act);
  // Moves the pointers to what stays by so many elements.
  void MoveStaying(const CallTurns& turns, int64_t elements);

  TaskMemory memory_;
  std::vector<ComputeCall> calls_;
  std::vector<CallTurns> turns_;
  std::vector<void*> pointers_;              // of all calls: inputs, then outputs
  std::vector<size_t> first_pointer_;        // by call
  std::vector<uint64_t> seen_;               // by call: VariablesIn its last act
  std::vector<size_t> together_;             // by call: the end of those that are run with it
  std::vector<std::vector<Moving>> moving_;  // by end
  std::vector<std::byte*> current_;          // slot address by end
  std::atomic<size_t> running_{0};           // of calls_
  const Options options_;
  CapturedCalls captured_;
  const bool reads_step_;  // one of the kernels, from its stream
};

}  // namespace braid
