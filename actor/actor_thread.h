// The actors of one device stream and the thread that they share: a Pollable on a Reactor. Inside
// the thread a message is counted straight into its receiver, which joins the list of actors that
// can fire; nothing is locked, allocated or woken. Other threads come in through a Mailbox. What
// the actors share is their ThreadCore; this class makes them, polls, and reads mails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "actor/actor.h"
#include "actor/mailbox.h"
#include "actor/thread_core.h"
#include "actor/thread_load.h"
#include "actor/thread_observer.h"
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
// destroy the reactors, or Leave them, then the threads, then the bus.
//
// Several may share a reactor, one of them at work at a time: the one that was started or run last.
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

  // The reactor calls it no more; after on_closed, in a function that was posted to the reactor.
  void Leave() { reactor_->RemovePollable(this); }

  // Why each actor does not act and how full its registers are, in the order of AddActor. Reactor's
  // thread.
  std::vector<ActorReport> Describe() const;
  // How it spent its time up to `now`. Reactor's thread.
  ThreadLoadReport load(Nanoseconds now) const { return observer_.load(now); }

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
  int64_t acts_done() const { return observer_.acts_done(); }
  // Why it stopped firing: a failure or Abort's cause; OK while it runs. Reactor's thread.
  const absl::Status& cause() const { return core_.cause(); }
  bool has_stopped() const { return core_.has_stopped(); }

  uint16_t number() const { return number_; }
  Reactor& reactor() { return *reactor_; }

  // For MessageBus. In the order of AddActor.
  std::span<const std::unique_ptr<Actor>> actors() const { return actors_; }
  // nullptr if it has no such actor.
  Actor* FindActor(uint32_t task) const;
  // Its actors are connected: it may run. `mails`: from other nodes and its owner, as many as will
  // be unread at a time.
  void Start(size_t mails);
  // A message from another node or the owner. Any thread.
  void Receive(const Message& message) { core_.Push(message); }

  bool Poll() override;

 private:
  bool PollInOrder();
  bool PollShuffled();
  void Read(Mail* mail);
  // As Read; if it gives something to do, its sender was waited for.
  void ReadFromIdle(Mail* mail);
  void ReadUnaddressed(const Message& message);
  void ReadForThread(const Message& message);
  void Refuse(const Message& message, std::string_view why);
  void AddRun(int64_t steps);

  const uint16_t number_;
  const size_t max_messages_per_poll_;
  const std::unique_ptr<Choice> order_;
  Reactor* const reactor_;
  MessageBus& bus_;
  ThreadCore core_;
  ThreadObserver observer_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::unordered_map<uint32_t, Actor*> actor_of_task_;
  std::deque<Mail*> unread_;  // taken from the mailbox, if shuffled
};

}  // namespace braid
