// A Task at run time: it counts ready inputs, free outputs and credits, and starts its Action when
// none is missing. Belongs to one thread, which it knows as its ThreadCore; everything here happens
// on that thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "actor/action.h"
#include "actor/actor_report.h"
#include "actor/actor_spec.h"
#include "actor/mailbox.h"
#include "actor/register_ring.h"
#include "actor/thread_core.h"
#include "actor/thread_observer.h"
#include "runtime/base/ring_buffer.h"

namespace braid {

class Actor;

// The other end of an edge, and the way to it: an actor of this thread, the inbox of another
// thread, or, with neither, another node.
struct OtherEnd {
  ActorId id = {};
  Actor* actor = nullptr;  // counts directly
  uint32_t port = 0;       // the actor's input or output
  uint32_t reader = 0;     // of an output: which of its consumers this end is
  ThreadCore* inbox = nullptr;
  Mail* mails = nullptr;  // for the inbox, one per slot
};

class Actor : private ActDone::Receiver {
 public:
  // `core` is borrowed.
  Actor(ActorSpec spec, std::unique_ptr<Action> action, ThreadCore* core, ActorObserver observer);
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  const ActorSpec& spec() const { return spec_; }
  int64_t acts_done() const { return done_; }
  ThreadCore& core() const { return core_; }
  ThreadId LastAwaited() const { return action_->LastAwaited(); }
  ActorReport Describe() const;

  // Before the first act: the ends of its edges inside the node. Until then each is taken for one
  // on another node.
  void ConnectInput(uint32_t port, const OtherEnd& producer) { inputs_[port].producer = producer; }
  void ConnectOutput(uint32_t port, uint32_t reader, const OtherEnd& consumer) {
    outputs_[port].consumers[reader] = consumer;
  }

  // The core's newest Run.
  void AddRun(int64_t steps);
  // A kReady for input `port`, or a kAck of consumer `reader` for output `port`, from another
  // thread or node.
  void Receive(const Message& message, uint32_t port, uint32_t reader);
  // The mail came that says that its act ended on another thread.
  void ReadCompletion();
  // Starts an act; finishes it too if the action is done at once. For what the core's FireList
  // gives.
  void Fire();

 private:
  struct Input {
    InputRing ring;
    OtherEnd producer;
    int32_t lane = kNoLane;
  };
  struct Output {
    OutputRing ring;
    std::vector<OtherEnd> consumers;
    int32_t lane = kNoLane;
  };
  struct Lane {
    uint32_t missing = 0;     // of its own ends
    bool is_waiting = false;  // in complete_lanes_
  };

  void OnReady(uint32_t port, uint32_t slot, int64_t piece);
  void OnAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece);
  void QueueIfFireable();
  // An end of the lane, or of none, became ready or free, or no longer is.
  void EndCame(int32_t lane);
  void EndWent(int32_t lane);
  bool IsOfAct(int32_t lane) const { return lane == kNoLane || lane == act_lane_; }
  // Whether the next act may have to wait for an end of the lane, or of none.
  bool MayMiss(int32_t lane) const { return lane == kNoLane || complete_lanes_.empty(); }
  void QueueLane(int32_t lane);
  // The lane of the act that begins.
  int32_t TakeLane();

  // Any thread.
  static void OnDone(Receiver* self, int64_t index, absl::Status status);
  // The running act did not end inside its start.
  void GoOn();
  // That act ended with done_status_.
  void FinishLate();
  // Any act ended with done_status_.
  void Finish();
  // What this end has done with `slot`, to the other end.
  void TellReady(const OtherEnd& consumer, RegisterId reg, uint32_t slot, int64_t piece);
  void TellAck(const OtherEnd& producer, RegisterId reg, uint32_t slot, int64_t piece);
  // As these, to another thread or node.
  void Send(const OtherEnd& end, const Message& message);

  bool IsOnThread(const ActorId& peer) const {
    return peer.node == spec_.id.node && peer.thread == spec_.id.thread;
  }
  void DescribeQueues(ActorReport& report) const;
  void DescribeCounts(ActorReport& report) const;
  void DescribeWaits(ActorReport& report) const;

  void Fail(absl::StatusCode code, std::string_view what);
  void RefuseReady(uint32_t port, uint32_t slot, int64_t piece);
  void RefuseAck(uint32_t port, uint32_t reader, uint32_t slot, int64_t piece);

  ThreadCore& core_;
  const std::unique_ptr<Action> action_;
  ActorObserver observer_;
  const bool is_deferrable_;
  // How many inputs are not ready and outputs not free; those of lanes count as one, unless a lane
  // is complete.
  uint32_t missing_ = 0;
  bool is_acting_ = false;
  bool is_starting_ = false;  // inside Action::Start
  bool is_done_inside_start_ = false;
  bool is_queued_ = false;  // in the core's list of actors that can fire
  int64_t started_ = 0;     // acts
  int64_t done_ = 0;
  int64_t credited_ = 0;
  RunPlace place_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> input_slots_;
  std::vector<uint32_t> output_slots_;
  std::vector<Lane> lanes_;
  RingBuffer<int32_t> complete_lanes_;  // in the order in which they became so
  int32_t act_lane_ = kNoLane;          // of the act that runs

  // Written by the thread that calls done, read after its mail was taken.
  absl::Status done_status_;
  Mail completion_;
  std::atomic<bool> is_completion_sent_{false};  // and not read
  const ActorSpec spec_;
};

}  // namespace braid
