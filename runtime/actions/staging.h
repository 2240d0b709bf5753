// The action that copies a register between a device's own memory and the host's, byte by byte.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "actor/action.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/stream.h"

namespace braid {

class StagingAction final : public Action {
 public:
  struct Part {
    OperandAddress from, to;
    uint64_t bytes = 0;
  };
  struct Options {
    std::vector<Part> parts;
    WorkName name;
    Stream* stream = nullptr;  // borrowed
  };
  StagingAction(TaskMemory memory, Options options)
      : memory_(std::move(memory)), options_(std::move(options)) {}
  void Start(const Act& act, ActDone done) override;

 private:
  const TaskMemory memory_;
  const Options options_;
};

}  // namespace braid
