// Watches that no register's bytes change hands while somebody still reads them. Simulations carry
// it: there a wrong edge in the memory plan shows as an error, not as wrong numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actor/action.h"
#include "actor/message.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/device.h"

namespace braid {

// Who wrote each block of a node's arenas last: a register, by its id. One thread.
class ShadowMemory {
 public:
  explicit ShadowMemory(const Devices* devices) : devices_(devices) {}

  void Write(RegisterId reg, const std::byte* from, uint64_t bytes);
  // INTERNAL naming both registers if another one wrote there since.
  absl::Status Check(RegisterId reg, const std::byte* from, uint64_t bytes) const;

 private:
  struct Blocks {
    size_t arena;  // 2 * device, or 1 more for what is pinned
    uint64_t first, end;
  };
  Blocks BlocksOf(const std::byte* from, uint64_t bytes) const;

  const Devices* devices_;
  std::vector<std::vector<uint64_t>> writers_;  // by arena and block: register + 1; 0: nobody
};

// An action that tells the shadow what it writes; it asks before what it reads, and after what it
// read and wrote.
class CheckedAction final : public Action, private ActDone::Receiver {
 public:
  struct End {
    RegisterId reg = 0;
    SlotMemory memory;
    int32_t lane = kNoLane;
    // Whether an act for `of` uses it.
    bool IsUsed(int32_t of) const {
      return memory.base != nullptr && (lane == kNoLane || lane == of);
    }
  };
  CheckedAction(std::unique_ptr<Action> action, std::vector<End> inputs, std::vector<End> outputs,
                ShadowMemory* shadow)
      : Receiver{&CheckedAction::OnDone},
        action_(std::move(action)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        shadow_(shadow) {}
  void Start(const Act& act, ActDone done) override;
  std::vector<ThreadId> Awaits() const override { return action_->Awaits(); }
  ThreadId LastAwaited() const override { return action_->LastAwaited(); }

 private:
  absl::Status Check(const std::vector<End>& ends, const Act& act,
                     std::span<const uint32_t> slots) const;
  absl::Status CheckDone() const;
  // The action's act ended. Any thread.
  static void OnDone(Receiver* self, int64_t index, absl::Status status);

  std::unique_ptr<Action> action_;
  const std::vector<End> inputs_, outputs_;
  ShadowMemory* const shadow_;  // borrowed
  // The act that runs.
  Act act_;
  ActDone done_{nullptr, 0};
};

}  // namespace braid
