// A Task at run time: it counts ready inputs, free outputs and credits, and starts its Action when
// none is missing. Belongs to one ActorThread; everything here happens on that thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "actor/action.h"
#include "actor/actor_spec.h"
#include "actor/mailbox.h"
#include "actor/register_ring.h"
#include "runtime/base/reactor.h"

namespace braid {

class ActorThread;

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

class Actor {
 public:
  // `place`: its number in the thread.
  Actor(ActorSpec spec, std::unique_ptr<Action> action, ActorThread* thread, uint32_t place);
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  const ActorSpec& spec() const { return spec_; }
  int64_t acts_done() const { return done_; }
  ActorReport Describe() const;

 private:
  friend class ActorThread;
  friend class MessageBus;

  // The other end of an edge, resolved once before the first act.
  struct Peer {
    ActorId id;
    Actor* actor = nullptr;        // nullptr: on another node
    ActorThread* inbox = nullptr;  // nullptr: on this thread, counted directly
    uint32_t port = 0;             // the actor's input or output
    uint32_t reader = 0;           // the reader's number at that output
    Mail* mails = nullptr;         // one per slot, if `inbox`
  };
  struct Input {
    InputRing ring;
    Peer producer;
  };
  struct Output {
    OutputRing ring;
    std::vector<Peer> consumers;
  };

  void AddCredits(int64_t acts);
  void OnReady(uint32_t port, uint32_t slot, int64_t piece);
  void OnAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece);

  // Starts an act; finishes it too if the action is done at once.
  void Fire();
  // As Fire, and measures the time inside Start.
  void FireTimed();
  void StartAct();
  void GoOn(Nanoseconds began);
  // ActDone's function; any thread.
  static void OnDone(void* context, int64_t index, absl::Status status);
  // The running act ended with done_status_.
  void Finish();
  void RecordEnd();
  void Tell(const Peer& peer, MessageKind kind, RegisterId reg, uint32_t slot, int64_t piece);
  void QueueIfFireable();
  bool IsOnThread(const ActorId& peer) const {
    return peer.node == spec_.id.node && peer.thread == spec_.id.thread;
  }

  absl::Status Error(absl::StatusCode code, std::string_view what) const;
  void RefuseReady(uint32_t port, uint32_t slot, int64_t piece);
  void RefuseAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece);

  ActorThread& thread_;
  const std::unique_ptr<Action> action_;
  const uint32_t place_;
  const uint64_t act_word_;  // of an event: an act of this actor began
  const bool is_deferrable_;
  // How many inputs are not ready and outputs not free.
  uint32_t missing_ = 0;
  bool is_acting_ = false;
  bool is_starting_ = false;  // inside Action::Start
  bool is_done_inside_start_ = false;
  bool is_queued_ = false;  // in the thread's list of actors that can fire
  int64_t started_ = 0;     // acts
  int64_t done_ = 0;
  int64_t credited_ = 0;
  int64_t run_end_ = INT64_MAX;  // acts done at the end of the run that it is in
  int64_t run_ = 0;              // the number of that run
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> input_slots_;
  std::vector<uint32_t> output_slots_;

  Nanoseconds since_ = 0;  // the act began, or ended
  int64_t timed_acts_ = 0;
  Nanoseconds act_time_ = 0;
  // Written by the thread that calls done, read after its mail was taken.
  absl::Status done_status_;
  Mail completion_;
  std::atomic<bool> is_completion_sent_{false};  // and not read
  const ActorSpec spec_;
};

}  // namespace braid
