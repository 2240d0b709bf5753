// All that is seen of a thread and its actors for reports: the last events, when acts began and
// ended, how long they took, and whom the thread waited for. Whoever counts calls its hooks; what
// it has seen changes nothing in what they do, but for how long they do it at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "actor/action.h"
#include "actor/event_ring.h"
#include "actor/message.h"
#include "actor/thread_load.h"
#include "runtime/base/reactor.h"

namespace braid {

// After which what was posted to the reactor, a question of what the thread does for instance,
// comes to its turn.
constexpr Nanoseconds kLongPoll = 50 * kMillisecond;

// Of a thread. Its hooks are for the reactor's thread; what any thread may ask says so. The clock
// is read once a Poll, and after each act only while acts are long.
class ThreadObserver {
 public:
  explicit ThreadObserver(const Reactor* clock) : clock_(*clock) {}
  ThreadObserver(const ThreadObserver&) = delete;
  ThreadObserver& operator=(const ThreadObserver&) = delete;

  void OnPollBegin();
  // `has_more`: the next Poll follows at once.
  void OnPollEnd(bool has_more) { has_more_ = has_more; }
  // After a Poll that left nothing to do.
  void OnIdle();
  // While it was idle, a mail of `cause` was read; does it give something to do?
  void OnMailWhileIdle(const ThreadId& cause, bool has_work);
  // An act of `action` ended outside of a Poll.
  void OnActEndOutsidePoll(const Action& action);
  bool is_idle() const { return load_.is_idle(); }

  // How it spent its time up to `now`.
  ThreadLoadReport load(Nanoseconds now) const { return load_.Report(now); }
  // Acts that ended so far. Any thread.
  int64_t acts_done() const { return acts_done_.load(std::memory_order_relaxed); }
  // Any thread.
  const EventRing& events() const { return events_; }

  // For ActorObserver.
  Nanoseconds now() const { return now_; }
  bool is_timing() const { return is_timing_; }
  // Whether acts have taken so much of this Poll that it is others' turn. Acts that are not timed
  // are short.
  bool is_long_poll() const { return now_ - poll_began_ >= kLongPoll; }
  void LookAtClock() { SetNow(clock_.Now()); }
  void CountAct() {
    acts_done_.store(acts_done() + 1, std::memory_order_relaxed);  // one writer
  }
  void RecordAct(uint64_t kind_word, int64_t index) {
    events_.Record(time_word_ | kind_word, index);
  }
  void Record(ActorEvent event) {
    event.time = now_;
    events_.Record(event);
  }

 private:
  void SetNow(Nanoseconds now) {
    now_ = now;
    time_word_ = EventRing::TimeWord(now);
  }
  // The acts since the last call took `time`: are they long enough to be timed each?
  void JudgePace(Nanoseconds time);

  uint64_t time_word_ = 0;  // of an event: at now_
  Nanoseconds now_ = 0;     // at the start of the Poll, or at the end of an act that is timed
  std::atomic<int64_t> acts_done_{0};
  bool is_timing_ = true;
  bool has_more_ = false;  // as the last Poll said
  Nanoseconds poll_began_ = 0;
  int64_t acts_judged_ = 0;
  const Reactor& clock_;
  ThreadLoad load_;
  EventRing events_;
};

// Of one actor; lies in it.
class ActorObserver {
 public:
  // `place`: the actor's number in the thread.
  ActorObserver(ThreadObserver* thread, uint32_t place)
      : thread_(*thread),
        act_word_(EventRing::KindWord(ActorEvent::Kind::kAct, place)),
        place_(place) {}

  void OnActBegin(int64_t index) { thread_.RecordAct(act_word_, index); }
  // The act ended inside its start.
  void OnActEnd(int64_t index) {
    if (thread_.is_timing()) [[unlikely]]
      OnTimedEnd(index);
    OnEnd();
  }
  // The act's start came back, and the act had not ended.
  void OnActGoesOn(int64_t index);
  // That act ended.
  void OnLateActEnd(int64_t index) {
    Record(ActorEvent::Kind::kEnd, index);
    OnEnd();
  }
  // A message for the actor's input or output `port` came from another thread or node.
  void OnMessage(const Message& message, uint32_t port) {
    thread_.Record({.kind = message.kind == MessageKind::kReady ? ActorEvent::Kind::kReady
                                                                : ActorEvent::Kind::kAck,
                    .actor = place_,
                    .port = port,
                    .slot = message.slot,
                    .piece = message.piece});
  }
  void OnActEndOutsidePoll(const Action& action) { thread_.OnActEndOutsidePoll(action); }

  // When the act that goes on began, or the last one ended; precise to a Poll.
  Nanoseconds since() const { return since_; }
  // Acts whose length was measured, and their time inside the thread.
  int64_t timed_acts() const { return timed_acts_; }
  Nanoseconds act_time() const { return act_time_; }

 private:
  void Record(ActorEvent::Kind kind, int64_t index) {
    thread_.Record({.kind = kind, .actor = place_, .piece = index});
  }
  // Measures the act whose start has just come back.
  void Measure();
  void OnTimedEnd(int64_t index);
  void OnEnd() {
    since_ = thread_.now();
    thread_.CountAct();
  }

  ThreadObserver& thread_;
  const uint64_t act_word_;  // of an event: an act of this actor began
  Nanoseconds since_ = 0;
  int64_t timed_acts_ = 0;
  Nanoseconds act_time_ = 0;
  const uint32_t place_;
};

}  // namespace braid
