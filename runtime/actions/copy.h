// The action that assembles a tensor from boxes of others: the receiving end of an exchange.
#pragma once

#include <vector>

#include "actor/action.h"
#include "graph/dtype.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/box.h"
#include "runtime/device/stream.h"

namespace braid {

class CopyAction final : public Action {
 public:
  struct Move {
    OperandAddress source;
    BoxRuns runs;
    bool add = false;
  };
  struct Options {
    OperandAddress destination;
    uint64_t destination_bytes = 0;
    DType dtype = DType::kF32;
    Sbp::Kind reduction = Sbp::Kind::kPartialSum;
    bool zero_first = false;
    std::vector<Move> moves;   // in the order in which they are added
    Stream* stream = nullptr;  // borrowed
  };
  CopyAction(TaskMemory memory, Options options)
      : memory_(std::move(memory)), options_(std::move(options)) {}
  void Start(const Act& act, ActDone done) override;

 private:
  TaskMemory memory_;
  Options options_;
};

}  // namespace braid
