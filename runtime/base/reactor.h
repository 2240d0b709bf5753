// The one place where Braid waits and reads time. Actor threads, transports, collectives and the
// control plane stand on a Reactor; an Environment makes reactors: real ones (a thread each) or
// simulated ones (all of them in one thread, order and clock decided by a seed).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace braid {

// Nanoseconds. Time is since the environment's start; never wall-clock.
using Nanoseconds = int64_t;
constexpr Nanoseconds kMicrosecond = 1000;
constexpr Nanoseconds kMillisecond = 1000 * kMicrosecond;
constexpr Nanoseconds kSecond = 1000 * kMillisecond;
// As a timeout: never, and still no sum of times overflows.
constexpr Nanoseconds kForever = INT64_MAX / 4;
constexpr double Seconds(Nanoseconds time) { return static_cast<double>(time) / kSecond; }

using TimerId = uint64_t;

// What a reactor calls whenever it was woken: an ActorThread's mailbox, for instance. Cheaper than
// a Post per message: the producer pushes into its own queue and calls Reactor::Wake.
class Pollable {
 public:
  virtual ~Pollable() = default;
  // Does a bounded amount of work on the reactor's thread. True if there is more to do at once.
  virtual bool Poll() = 0;
};

// What changes without a call or a descriptor that would tell a reactor, as memory does that
// another process writes, or has time until the reactor has nothing else to do. The reactor's
// thread.
class Lookout {
 public:
  virtual ~Lookout() = default;
  // True if something was there; a bounded amount of it is done.
  virtual bool Look() = 0;
  // True: from now on what comes wakes the reactor, by a descriptor that it watches. False: it has
  // to be looked at before.
  virtual bool Sleep() = 0;
};

// An event loop that belongs to one thread.
class Reactor {
 public:
  virtual ~Reactor() = default;

  virtual Nanoseconds Now() const = 0;  // any thread

  // Runs `fn` on the reactor's thread, in order of posting per posting thread (real) or in a seeded
  // order that keeps each poster's order (simulated). Any thread.
  // What `fn` holds fits into it without memory of its own up to the size of a shared_ptr.
  // Whoever hears from `fn` may destroy the reactor, also before this call has returned.
  virtual void Post(absl::AnyInvocable<void()> fn) = 0;

  // Makes the reactor call Poll() of its pollable soon. Any thread; costs a system call only if the
  // reactor sleeps.
  virtual void Wake() = 0;
  // In place of the one before; polled once at once. Any thread. Not owned: it outlives the reactor
  // or is removed before.
  virtual void SetPollable(Pollable* pollable) = 0;
  // If it is the one, there is none from now on. The reactor's thread, not inside a Poll.
  virtual void RemovePollable(Pollable* pollable) = 0;

  // Runs `fn` once, `delay` from now. Reactor's thread only (as are all below).
  virtual TimerId RunAfter(Nanoseconds delay, absl::AnyInvocable<void()> fn) = 0;
  virtual void CancelTimer(TimerId id) = 0;

  // Calls `fn` whenever `descriptor` is readable and/or writable (level-triggered), until Unwatch,
  // which must come before the descriptor is closed. An error or hang-up counts as both. A second
  // Watch of a descriptor replaces interest and function. A simulated reactor watches descriptors
  // of its simulation only (runtime/base/simulation.h).
  struct Readiness {
    bool readable = false;
    bool writable = false;
  };
  virtual absl::Status Watch(int descriptor, Readiness interest,
                             std::function<void(Readiness)> fn) = 0;
  // Another interest for a descriptor that is watched; the function stays.
  virtual absl::Status SetInterest(int descriptor, Readiness interest) = 0;
  virtual void Unwatch(int descriptor) = 0;

  // The reactor looks there by itself, until it sleeps: before that it lets the lookout sleep, and
  // then looks there no more. Not owned: it outlives the reactor, sleeps, or is taken back before.
  virtual void LookOut(Lookout* lookout) {
    while (!lookout->Sleep()) lookout->Look();
  }
  virtual void LookAway(Lookout* /*lookout*/) {}
  virtual bool looks_out() const { return false; }  // or LookOut has it done at once

  virtual bool InThread() const = 0;

  // Lends the loop to the calling thread, which is the reactor's until `is_done`: who waits for
  // what happens here pays for no wake-up, and for a while afterwards the loop is lent again at no
  // cost. `first` is posted before; null: nothing is. What makes `is_done` true is done by the
  // loop. False: the loop is not lent (it is simulated, somebody has it, or this is its thread),
  // and `first` was posted.
  virtual bool RunUntil(absl::AnyInvocable<void()> first, absl::FunctionRef<bool()> is_done) {
    static_cast<void>(is_done);
    if (first) Post(std::move(first));
    return false;
  }
};

// A flag that the host thread can wait for, through its Environment only.
class Event {
 public:
  virtual ~Event() = default;
  virtual void Set() = 0;  // any thread, once or more
  virtual bool is_set() const = 0;
};

class Environment {
 public:
  virtual ~Environment() = default;
  virtual Nanoseconds Now() const = 0;
  // A reactor that runs until its owner destroys it (which joins its thread, after the work posted
  // before). `name` is shown by debuggers and in reports.
  virtual std::unique_ptr<Reactor> StartReactor(std::string_view name) = 0;
  virtual std::unique_ptr<Event> MakeEvent() = 0;
  // The host thread waits. DEADLINE_EXCEEDED after `timeout`; the simulated environment runs events
  // meanwhile and returns INTERNAL "no event left" at once if nothing can ever set it.
  virtual absl::Status Await(Event& event, Nanoseconds timeout) = 0;
  virtual bool is_simulated() const = 0;
};

std::unique_ptr<Environment> MakeRealEnvironment();

// All reactors made from it run inside Await() on the calling thread. The seed decides which
// reactor runs next, delays of timers' ties and of Post; the clock jumps to the next event.
std::unique_ptr<Environment> MakeSimulatedEnvironment(uint64_t seed);

}  // namespace braid
