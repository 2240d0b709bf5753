// The action of one member of a collective.
#pragma once

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

  void Start(const Act& act, ActDone done) override;
  std::vector<ThreadId> Awaits() const override;
  ThreadId LastAwaited() const override;

 private:
  TaskMemory memory_;
  const Options options_;
  std::optional<ActDone> done_;  // of the act that is under way
};

}  // namespace braid
