// A process that outlives this one by an instant, to end the process groups that this one leaves
// behind when it is killed: the parent-death signal reaches children only, not what they started.
#pragma once

#include <sys/types.h>

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/descriptor.h"

namespace braid {

// It waits for the end of a pipe that only this process holds. Groups that left by setsid or
// setpgid are not known to it.
class ProcessGuard {
 public:
  // Before this process has other threads.
  static absl::StatusOr<std::unique_ptr<ProcessGuard>> Start();
  // Ends the guard; the groups that it still has are killed.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  // The leader of a group, before its program runs, makes itself known by GuardOwnGroup in this
  // pipe; after its end Forget. Closed on exec.
  int descriptor() const { return pipe_.number(); }
  void Forget(pid_t group) const;

 private:
  ProcessGuard(Descriptor pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}

  Descriptor pipe_;
  const pid_t pid_;
};

// In a child between fork and exec: only async-signal-safe calls. A guard that is gone is no error.
void GuardOwnGroup(int guard_descriptor);

}  // namespace braid
