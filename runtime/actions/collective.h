// The action of one member of a collective.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actor/action.h"
#include "comm/collective/collective.h"
#include "runtime/actions/task_memory.h"

namespace braid {

class CollectiveAction final : public Action {
 public:
  // `threads`: where each member's actor lives, by rank.
  struct Options {
    OperandAddress input, output;
    Collective* collective = nullptr;  // borrowed from the executor
    std::vector<ThreadId> threads;
  };
  CollectiveAction(TaskMemory memory, Options options)
      : memory_(std::move(memory)), options_(std::move(options)) {}

  void Start(const Act& act, ActDone done) override {
    const uint32_t* inputs = act.input_slots.data();
    const uint32_t* outputs = act.output_slots.data();
    done_ = done;
    options_.collective->Start(act.index, memory_.Locate(options_.input, inputs, outputs),
                               memory_.Locate(options_.output, inputs, outputs),
                               [this](absl::Status status) { (*done_)(std::move(status)); });
  }

  std::vector<ThreadId> Awaits() const override {
    std::vector<ThreadId> threads;
    for (int rank : options_.collective->Awaits()) threads.push_back(options_.threads[rank]);
    return threads;
  }
  ThreadId LastAwaited() const override {
    const int rank = options_.collective->LastHeard();
    return rank < 0 ? ThreadId() : options_.threads[rank];
  }

 private:
  TaskMemory memory_;
  const Options options_;
  std::optional<ActDone> done_;  // of the act that is under way
};

}  // namespace braid
