// The actors of one device stream and the thread that they share: a Pollable on a Reactor. Inside
// the thread a message is counted straight into its receiver, which joins the list of actors that
// can fire; nothing is locked, allocated or woken. Other threads come in through a Mailbox.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "actor/actor.h"
#include "actor/event_ring.h"
#include "actor/mailbox.h"
#include "actor/thread_load.h"
#include "runtime/base/reactor.h"
#include "runtime/base/seeded_choice.h"

namespace braid {

class MessageBus;

struct ActorThreadOptions {
  uint16_t thread = 0;
  // Acts (and mails) between two looks of the reactor at timers and descriptors.
  size_t max_messages_per_poll = 64;
  // For simulation: one message or act a Poll, which `order` chooses from all that could be next.
  // The messages of one actor to another keep their order. Null: all in order.
  std::unique_ptr<Choice> order = nullptr;

  // All on the reactor's thread.
  // Every actor did the acts of one Run, once for each; `steps` counts from the session's start.
  std::function<void(int64_t steps)> on_run_done = {};
  // The first failure, once: an action's, or a message that cannot be true. From then on nothing
  // fires; the owner is expected to Abort.
  std::function<void(absl::Status)> on_failure = {};
  // After Abort or kDone, once: no act is running any more, none will.
  std::function<void()> on_closed = {};
};

// Life: make the threads of a node on one MessageBus, AddActor to each, MessageBus::Start, Run;
// at the end Abort, wait for on_closed of every thread, close what calls MessageBus::Deliver,
// destroy the reactors, then the threads, then the bus.
class ActorThread : public Pollable {
 public:
  // Both outlive it in use; neither is touched by the destructor.
  ActorThread(ActorThreadOptions options, Reactor* reactor, MessageBus* bus);
  ~ActorThread() override;
  ActorThread(const ActorThread&) = delete;
  ActorThread& operator=(const ActorThread&) = delete;

  // Before MessageBus::Start. INVALID_ARGUMENT names what is wrong with the spec.
  absl::Status AddActor(ActorSpec spec, std::unique_ptr<Action> action);

  // Gives every actor credits for `steps` >= 1 more steps. Any thread; also before the last Run is
  // done.
  void Run(int64_t steps);

  // Nothing fires any more and messages are dropped; running acts end. Any thread.
  void Abort(absl::Status cause);

  // Why each actor does not act and how full its registers are, in the order of AddActor. Reactor's
  // thread.
  std::vector<ActorReport> Describe() const;
  // How it spent its time up to `now`. Reactor's thread.
  ThreadLoadReport load(Nanoseconds now) const { return load_.Report(now); }

  // The act inside whose Start the thread is, also if it never comes back. Any thread.
  struct RunningAct {
    const ActorSpec* spec = nullptr;  // nullptr: it is inside none
    int64_t index = 0;
    Nanoseconds since = 0;
  };
  RunningAct running() const;
  // The last events, oldest first, a line each, with times before `now`. Any thread.
  std::vector<std::string> DescribeEvents(Nanoseconds now) const;

  // Acts that ended on this thread so far: does it advance? Any thread.
  int64_t acts_done() const { return acts_done_.load(std::memory_order_relaxed); }
  // Why it stopped firing: a failure or Abort's cause; OK while it runs. Reactor's thread.
  const absl::Status& cause() const { return cause_; }
  bool has_stopped() const { return has_stopped_; }

  uint16_t number() const { return options_.thread; }
  Reactor& reactor() { return *reactor_; }

  bool Poll() override;

 private:
  friend class Actor;
  friend class MessageBus;

  // The actors that can fire, each at most once; the deferrable ones come last.
  class FireList {
   public:
    void Reserve(size_t actors);
    bool empty() const { return urgent_.empty() && deferrable_.empty(); }
    size_t size() const { return urgent_.size() + deferrable_.size(); }
    void Push(Actor* actor, bool is_deferrable) {
      (is_deferrable ? deferrable_ : urgent_).Push(actor);
    }
    Actor* Pop() { return (urgent_.empty() ? deferrable_ : urgent_).Pop(); }
    Actor* Pop(size_t nth);

   private:
    struct Ring {
      bool empty() const { return first == end; }
      size_t size() const { return end - first; }
      void Push(Actor* actor) { actors[end++ & mask] = actor; }
      Actor* Pop() { return actors[first++ & mask]; }
      Actor* Pop(size_t nth);

      std::vector<Actor*> actors{nullptr};
      size_t mask = 0;
      size_t first = 0;
      size_t end = 0;
    };
    Ring urgent_, deferrable_;
  };
  struct RunCount {
    int64_t steps;       // from the session's start to this run's end
    size_t actors_left;  // that have not reached it
  };

  // From any thread.
  void Push(Mail* mail) {
    if (mailbox_.Push(mail)) reactor_->Wake();
  }
  void PushUnaddressed(const Message& message);

  void SetNow(Nanoseconds now) {
    now_ = now;
    time_word_ = EventRing::TimeWord(now);
  }
  bool PollInOrder();
  bool PollShuffled();
  // Acts that took `time` ended since the last call: are they long enough to be timed each?
  void JudgePace(Nanoseconds time);
  void Record(ActorEvent event) {
    event.time = now_;
    events_.Record(event);
  }
  void RecordMessage(const Actor& actor, uint32_t port, const Message& message) {
    Record({.kind = message.kind == MessageKind::kReady ? ActorEvent::Kind::kReady
                                                        : ActorEvent::Kind::kAck,
            .actor = actor.place_,
            .port = port,
            .slot = message.slot,
            .piece = message.piece});
  }
  // Reads a mail and gives it back if it is of the pool.
  void Read(Mail* mail);
  // As Read; if it gives something to do, its sender was waited for.
  void ReadFromIdle(Mail* mail);
  void ReadUnaddressed(const Message& message);
  void Fail(absl::Status status);
  void Stop(absl::Status cause);
  void Close(absl::Status cause);
  void CloseIfQuiet();
  void AddRun(int64_t steps);
  void EndRunOf(Actor& actor);
  void ReportRuns();
  void OnActEnd(Actor& actor) {
    acts_done_.store(acts_done() + 1, std::memory_order_relaxed);  // one writer
    if (actor.done_ == actor.run_end_) EndRunOf(actor);
  }

  const ActorThreadOptions options_;
  Reactor* const reactor_;
  MessageBus& bus_;

  FireList fireable_;
  uint64_t time_word_ = 0;  // of an event: at now_
  Nanoseconds now_ = 0;     // at the start of the Poll, or of an act that is timed
  std::atomic<int64_t> acts_done_{0};
  Nanoseconds poll_began_ = 0;
  int64_t acts_judged_ = 0;
  bool is_timing_ = true;
  bool has_more_ = false;    // as the last Poll said
  size_t acts_running_ = 0;  // whose Start returned
  std::atomic<bool> is_polling_{false};
  bool has_stopped_ = false;
  bool is_closing_ = false;
  bool is_closed_ = false;
  std::atomic<bool> is_abort_asked_{false};
  absl::Status cause_;

  std::vector<std::unique_ptr<Actor>> actors_;
  std::unordered_map<uint32_t, Actor*> actor_of_task_;
  std::deque<RunCount> runs_;  // not yet done
  int64_t first_run_ = 0;      // the number of runs_.front()
  int64_t steps_ = 0;          // credited
  std::deque<Mail*> unread_;   // taken from the mailbox, if shuffled

  EventRing events_;
  ThreadLoad load_;

  MailPool mails_;
  Mailbox mailbox_;
};

}  // namespace braid
