// What an actor says of itself: how far it has come, and what it waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actor/message.h"
#include "actor/thread_load.h"
#include "runtime/base/reactor.h"

namespace braid {

// Something without which an actor does not act.
struct Wait {
  enum class For : uint8_t {
    kReady,   // `peer` has to fill `slot` of `reg` with `piece`
    kAck,     // `peer` has to acknowledge `slot` of `reg` with `piece`
    kAction,  // its own act `piece` is running
    kCredit,  // Run; it has done all that it was told to
  };
  For what = For::kReady;
  RegisterId reg = 0;
  uint32_t slot = 0;
  int64_t piece = 0;
  ActorId peer = {};
};

// How full a register is, as one end of an edge sees it.
struct QueueDepth {
  RegisterId reg = 0;
  ActorId peer = {};
  bool is_input = false;
  uint32_t slots = 0;
  uint32_t used = 0;  // input: ready or in use; output: `peer` has not acknowledged them
};

// How far an end has come whose other end is on another thread.
struct EndCount {
  RegisterId reg = 0;
  int64_t pieces = 0;  // sent by this producer, or acknowledged by this consumer
};

struct ActorReport {
  ActorId id = {};
  std::string name = {};
  int64_t acts_done = 0;
  int64_t acts_credited = 0;
  Nanoseconds since = 0;         // when its act began, or the last one ended; precise to a Poll
  std::vector<Wait> waits = {};  // empty: it will act next
  std::vector<QueueDepth> queues = {};
  std::vector<ThreadId> awaits = {};  // of Wait::For::kAction: whom the act waits for
  std::vector<EndCount> sent = {};
  std::vector<EndCount> acknowledged = {};
  // Acts whose length was measured (long ones are), and their time inside the thread.
  int64_t timed_acts = 0;
  Nanoseconds act_time = 0;
};

}  // namespace braid
