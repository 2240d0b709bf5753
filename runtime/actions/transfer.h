// The action that sends a box to its landing slot on another node, without asking first: the slot
// is free, or the actor would not act.
#pragma once

#include <optional>
#include <vector>

#include "actor/action.h"
#include "comm/transport.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/box.h"
#include "runtime/device/stream.h"

namespace braid {

// The landing slots of one register at a peer. Filled in before the first act.
struct LandingPort {
  Link* link = nullptr;  // borrowed from the node
  MemoryKey key;         // covers all the slots
  uint64_t stride = 0;
};

class TransferAction final : public Action {
 public:
  struct Options {
    OperandAddress source;         // the tensor's first byte
    uint64_t first_byte = 0;       // of a box that is one run, from there
    uint64_t bytes = 0;            // of the box
    uint64_t landing = 0;          // from the landing slot's start
    std::byte* staging = nullptr;  // where a box of several runs is packed before it goes
    BoxRuns pack;
    size_t element_size = 0;
    Stream* stream = nullptr;  // packs; both borrowed
    const LandingPort* port = nullptr;
  };
  TransferAction(TaskMemory memory, Options options)
      : memory_(std::move(memory)), options_(std::move(options)) {}
  // Done when the source's bytes may be reused.
  void Start(const Act& act, ActDone done) override;
  std::vector<ThreadId> Awaits() const override { return {LastAwaited()}; }
  ThreadId LastAwaited() const override { return {.node = options_.port->link->peer()}; }

 private:
  TaskMemory memory_;
  Options options_;
  std::optional<ActDone> done_;  // of the act that is under way
};

}  // namespace braid
