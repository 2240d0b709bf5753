// A simulated world: processes whose reactors all run in the thread that waits, one event at a
// time, on one clock; a seed decides the order. What joins the processes (a simulated network)
// stands on the descriptors and the events here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/reactor.h"

namespace braid {

// Belongs to one thread, the host thread of every process. A process is named by its number, in the
// order of AddProcess.
class Simulation {
 public:
  // After everything that stands on its environments.
  virtual ~Simulation() = default;

  // The environment lives as long as the simulation. Its Await runs all processes.
  virtual Environment& AddProcess(std::string_view name) = 0;
  virtual Environment& process(int number) = 0;

  virtual Nanoseconds Now() const = 0;
  // In [0, n), by the seed.
  virtual uint64_t Below(uint64_t n) = 0;
  // An event that belongs to no process: it neither stops nor dies with one. Until it runs,
  // everything goes as it would without it.
  virtual void RunAfter(Nanoseconds delay, std::function<void()> fn) = 0;
  // As soon as `events` events have run; no event of its own. One for each number.
  virtual void RunAfterEvents(uint64_t events, std::function<void()> fn) = 0;

  // ---- faults. From an event of the world, or from the host thread between its waits.

  // Nothing of a paused process runs; time goes on, and what falls due meanwhile runs after Resume.
  // Its host thread does not come back from Await before.
  virtual void Pause(int process) = 0;
  virtual void Resume(int process) = 0;
  // What is posted to those of the process's reactors whose names begin so waits for ReleasePosts:
  // they stand in a call of the system, as on a slow disk.
  virtual void HoldPosts(int process, std::string_view reactors) = 0;
  virtual void ReleasePosts(int process) = 0;
  // The process has crashed: nothing of it is seen by others any more, and an Await under way
  // returns ABORTED at once. Its objects are taken down as those of a living process: what they
  // post, or wait for, runs while the host waits for it, on a clock that only this process sees.
  virtual void Kill(int process) = 0;
  virtual bool is_alive(int process) const = 0;
  virtual bool is_paused(int process) const = 0;
  // Called by Kill, in order of being added, before it returns.
  virtual void OnKilled(std::function<void(int process)> fn) = 0;

  // ---- descriptors, for Reactor::Watch in the process they belong to.

  struct DescriptorState {
    bool readable = false;
    bool writable = false;
    bool is_broken = false;  // an error or hang-up, which counts as both, wanted or not
  };
  virtual int OpenDescriptor(int process) = 0;
  virtual void SetDescriptor(int descriptor, DescriptorState state) = 0;
  // CHECK-fails if it is still watched.
  virtual void CloseDescriptor(int descriptor) = 0;

  // ---- what can be known of it.

  // What a process has not given back.
  struct Use {
    int reactors = 0;
    int descriptors = 0;
    int timers = 0;
  };
  virtual Use UseOf(int process) const = 0;
  virtual uint64_t num_events() const = 0;
  // Of all choices and times so far: equal in two runs that went the same way.
  virtual uint64_t digest() const = 0;
};

std::unique_ptr<Simulation> MakeSimulation(uint64_t seed);

}  // namespace braid
