// Runs of a job that the program's thread works off by itself. Where one thread of one device does
// all that a job does, a Run costs what its acts cost: no other thread is woken to begin it or to
// say that it is done. The node's control thread and its reports go on as in any other Run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

// Shared by an Executor and whoever runs its job.
class LocalRuns {
 public:
  // All borrowed. `begin` gives the actors credits for so many steps; it is called on the loop's
  // thread, and not after Close. The environment and the loop outlive this object.
  using Begin = std::function<void(int64_t first_step, int64_t steps)>;
  LocalRuns(Environment* environment, Reactor* loop, Begin begin)
      : environment_(*environment), loop_(*loop), begin_(std::move(begin)) {}

  // Returns when all steps are done, with true; or false if the job is being closed, as after a
  // failure. Between Runs only; not on the loop's thread.
  bool Run(int64_t first_step, int64_t steps);

  // By the Executor. Whether what its actors do is such a Run. The loop's thread, as the next.
  bool is_running() const { return state_.load(std::memory_order_relaxed) == State::kRunning; }
  void OnRunDone() { End(State::kDone); }
  // No Run begins from now on.
  void Close();
  // Nothing of the job runs any more. Any thread.
  static void OnClosed(const std::shared_ptr<LocalRuns>& runs);

 private:
  enum class State : int { kIdle, kRunning, kDone, kClosed };

  void AwaitOwnThread();
  void BeginOrRefuse();
  void End(State state);

  Environment& environment_;
  Reactor& loop_;
  const Begin begin_;
  std::atomic<State> state_{State::kIdle};
  int64_t first_step_ = 0, steps_ = 0;  // of the Run that begins
  Mutex mutex_;
  bool is_closing_ BRAID_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Event> ended_ BRAID_GUARDED_BY(mutex_);  // if a Run waits without the loop
};

}  // namespace braid
