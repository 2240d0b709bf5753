// The work of an actor, behind the one door through which the actor layer sees it.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "actor/thread_load.h"
#include "runtime/base/ids.h"

namespace braid {

// One act: which slot of each register it reads and writes, in the order of the ActorSpec. The
// spans stay valid until the act is done.
struct Act {
  int64_t index = 0;  // counts from 0 over the session
  std::span<const uint32_t> input_slots = {};
  std::span<const uint32_t> output_slots = {};
  int32_t lane = kNoLane;  // of an actor that fires on `any`: the slots of other lanes are not its
};

// Tells the actor that an act ended. To be called exactly once per act, from any thread; within
// Start, on the same thread, it is cheapest. Copies freely and allocates nothing; is two words, so
// that it travels in registers.
class ActDone {
 public:
  // Who is told. Outlives the act.
  struct Receiver {
    void (*on_done)(Receiver* self, int64_t index, absl::Status status) = nullptr;
  };
  ActDone(Receiver* receiver, int64_t index) : receiver_(receiver), index_(index) {}

  void operator()(absl::Status status) const {
    receiver_->on_done(receiver_, index_, std::move(status));
  }

 private:
  Receiver* receiver_;
  int64_t index_;
};
static_assert(std::is_trivially_copyable_v<ActDone> && sizeof(ActDone) == 16);

class Action {
 public:
  virtual ~Action() = default;
  // Starts an act on the actor's thread and returns without waiting for anything. `done` may be
  // called before or after the return. The next act starts only after it.
  virtual void Start(const Act& act, ActDone done) = 0;

  // For reports, on the actor's thread. Whom the act that is under way waits for; empty: nobody
  // that it knows of.
  virtual std::vector<ThreadId> Awaits() const { return {}; }
  // Who let the last act end that did not end inside its start.
  virtual ThreadId LastAwaited() const { return {}; }
};

}  // namespace braid
