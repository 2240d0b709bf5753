// The action of one member of a collective. What the devices do by themselves they are told when
// all members have met: so none ever waits in its stream for a member that does not come.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actor/action.h"
#include "comm/collective/collective.h"
#include "runtime/actions/task_memory.h"
#include "runtime/device/device_group.h"

namespace braid {

class CollectiveAction final : public Action {
 public:
  // `threads`: where each member's actor lives, by rank.
  struct Options {
    OperandAddress input, output;
    Collective* collective = nullptr;  // borrowed from the executor
    std::vector<ThreadId> threads;
    // Null: `collective` does all; else its members meet by that. If they are on several nodes they
    // hear there what rank 0 says.
    std::unique_ptr<DeviceCollective> on_device;
    bool spans_nodes = false;
  };
  CollectiveAction(TaskMemory memory, Options options)
      : memory_(std::move(memory)), options_(std::move(options)) {
    if (!options_.spans_nodes) return;
    said_.resize(kDeviceWordBytes);
    heard_.resize(kDeviceWordBytes + options_.threads.size() - 1);
  }

  void Start(const Act& act, ActDone done) override;
  std::vector<ThreadId> Awaits() const override;
  ThreadId LastAwaited() const override;

 private:
  void OnMet(absl::Status status);

  TaskMemory memory_;
  const Options options_;
  std::vector<std::byte> said_, heard_;  // a word each, and a byte of each other member
  std::optional<ActDone> done_;          // of the act that is under way
};

}  // namespace braid
