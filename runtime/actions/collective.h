// The action of one member of a collective.
#pragma once

#include <memory>
#include <utility>

#include "actor/action.h"
#include "comm/collective.h"
#include "runtime/actions/task_memory.h"

namespace braid {

class CollectiveAction final : public Action {
 public:
  CollectiveAction(TaskMemory memory, OperandAddress input, OperandAddress output,
                   Collective* collective)
      : memory_(std::move(memory)), input_(input), output_(output), collective_(collective) {}

  void Start(const Act& act, ActDone done) override {
    const uint32_t* inputs = act.input_slots.data();
    const uint32_t* outputs = act.output_slots.data();
    collective_->Start(act.index, memory_.Locate(input_, inputs, outputs),
                       memory_.Locate(output_, inputs, outputs),
                       [done](absl::Status status) { done(std::move(status)); });
  }

 private:
  TaskMemory memory_;
  OperandAddress input_, output_;
  Collective* collective_;  // the executor owns it
};

}  // namespace braid
