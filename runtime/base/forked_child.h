// Children that go on in this program: fork without exec, so that what this process has computed is
// theirs, too. process.h starts other programs, and tells how any child ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// Whether this process may fork and go on in the child: FAILED_PRECONDITION, which names `what`
// asks and the threads, if it has more than one. Waits an instant for threads that were joined.
// Also if SIGCHLD is ignored, since nobody would then know how a child ended.
absl::Status CheckMayFork(std::string_view what);

// The pid of a child in which `run` is called, and which ends with what that returns as its exit
// code. It runs no functions of atexit and no destructors of static objects: these are this
// process's. What the standard streams have in their buffers is written before the fork here, and
// after `run` in the child, so that nothing is written twice or lost. The child gets SIGKILL when
// the thread that started it ends, be it by `kill -9` of this process. It has this process's signal
// mask and handlers.
// After CheckMayFork.
absl::StatusOr<pid_t> ForkChild(const std::function<int()>& run);

}  // namespace braid
