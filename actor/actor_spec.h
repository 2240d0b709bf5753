// An actor as data: what the Plan says of one Task's registers. Every variation of an actor is
// here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actor/message.h"
#include "runtime/base/ids.h"

namespace braid {

// A register that the actor reads. Each register is named once, however often the work reads it.
struct InputSpec {
  RegisterId reg = 0;
  ActorId producer = {};
  uint32_t slots = 1;           // as at the producer
  uint32_t period = 1;          // n: one slot serves n acts, then kAck
  uint32_t initial_tokens = 0;  // slots that are ready at the start, as at the producer
  int32_t lane = kNoLane;       // whose acts alone use it; kNoLane: every act does
};

// A register that the actor owns and writes.
struct OutputSpec {
  RegisterId reg = 0;
  uint32_t slots = 1;           // 1 = no overlap, 2 = double buffering, more = pipelining
  uint32_t period = 1;          // n: n acts fill one slot, then kReady
  uint32_t initial_tokens = 0;  // slots 0..n-1 count as filled and sent at the start
  std::vector<ActorId> consumers = {};
  int32_t lane = kNoLane;  // whose acts alone fill it; kNoLane: every act does
};

struct ActorSpec {
  ActorId id = {};
  std::string name = {};  // the op's, for messages to people
  std::vector<InputSpec> inputs = {};
  std::vector<OutputSpec> outputs = {};
  uint32_t acts_per_step = 1;
  // When it fires. 0, on `all`: an act takes all ends. n, on `any`: an act takes the ends of one of
  // n lanes, the one that was complete first, and those of no lane. What comes by which lane is
  // settled by who is faster, so that such an actor gives up repeatability.
  uint32_t lanes = 0;
  bool is_deferrable = false;  // it acts when no other actor of its thread can
};

// INVALID_ARGUMENT names what cannot be, whoever the actor's peers are.
absl::Status CheckSpec(const ActorSpec& spec);

}  // namespace braid
