// The process's signals as calls on a Reactor, instead of handlers.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/reactor.h"

namespace braid {

class SignalWatcher {
 public:
  // From now on each of `signals` is a call of `fn` on the reactor's thread; equal ones that come
  // at once may be one call. A signal that is ignored already stays so, as `nohup` and a shell's
  // background jobs expect.
  //
  // Blocks the signals in the calling thread and the reactor's. Threads that start later inherit
  // that; one that was there before would still be ended by a signal, so this comes first in a
  // program. Waits for the reactor's thread, which must be real and not the caller's.
  static absl::StatusOr<std::unique_ptr<SignalWatcher>> Start(Reactor* reactor,
                                                              const std::vector<int>& signals,
                                                              std::function<void(int)> fn);
  // Calls `fn` for what has come, then unblocks what Start blocked. On the thread that called
  // Start, and not from `fn`.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  SignalWatcher(Reactor* reactor, std::function<void(int)> fn);
  void RunOnReactor(const std::function<void()>& fn);
  bool Deliver();  // one; false: there was none

  Reactor* const reactor_;
  const std::function<void(int)> fn_;
  Descriptor signals_;
  sigset_t mask_before_;  // of the thread that called Start
  sigset_t reactor_mask_before_;
};

}  // namespace braid
