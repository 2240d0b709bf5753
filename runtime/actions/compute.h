// The action of a compute task: its kernels, one after another, or part by part together (see
// call_groups.h), in the device's stream. On a CPU they have run when it is done; elsewhere they
// have been queued.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actor/action.h"
#include "runtime/actions/call_groups.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/stream.h"
#include "runtime/kernels/kernel.h"

namespace braid {

struct ComputeCall {
  std::unique_ptr<Kernel> kernel;
  std::vector<OperandAddress> inputs, outputs;
  std::vector<GroupedOperand> grouped_inputs, grouped_outputs;
  WorkName name;
};

class ComputeAction final : public Action {
 public:
  struct Options {
    uint32_t acts_per_step = 1;
    const int64_t* first_step = nullptr;  // the job's at act 0; changes between Runs only
    Stream* stream = nullptr;             // both borrowed
    bool is_queued = false;               // kernels run later: what fails then is to have a name
  };
  ComputeAction(TaskMemory memory, std::vector<ComputeCall> calls, const Options& options);
  void Start(const Act& act, ActDone done) override;
  int64_t memory_bytes() const;  // what its kernels keep
  int64_t shared_bytes() const;  // the most that one of them reserves of the stream's work memory
  // "matmul 'fc1' (train.cc:12)": the kernel that runs, or ran last. Any thread.
  std::string RunningCall() const;

 private:
  // An operand whose address follows a slot.
  struct Moving {
    uint32_t end;      // input index, or number of inputs + output index
    uint32_t pointer;  // in pointers_
    uint64_t offset;
  };
  // Whether it is another slot than before.
  bool Move(uint32_t end, std::byte* slot);
  // The call's work is the next in the stream.
  void Begin(size_t call);
  KernelRun RunOf(size_t call, const Act& act) const;
  void RunGroup(size_t begin, const Act& act);
  // Moves the pointers of a group to what stays by so many elements.
  void MoveStaying(size_t begin, int64_t elements);

  TaskMemory memory_;
  std::vector<ComputeCall> calls_;
  CallGroups groups_;
  std::vector<void*> pointers_;              // of all calls: inputs, then outputs
  std::vector<std::vector<Moving>> moving_;  // by end
  std::vector<std::byte*> current_;          // slot address by end
  bool is_placed_ = false;                   // groups_, at current_
  std::atomic<size_t> running_{0};           // of calls_
  const Options options_;
};

}  // namespace braid
