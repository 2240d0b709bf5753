#include "runtime/base/process_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>

#include "runtime/base/status.h"

namespace braid {
namespace {

// A message is a number of this type: a group that began, or its negative, that ended.
using Entry = pid_t;

[[noreturn]] void Guard(int pipe) {
  setsid();  // a terminal's signals are not for it
  prctl(PR_SET_NAME, "braid guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  // Whoever waits for the end of our output is not to wait for the guard.
  if (dup2(pipe, STDIN_FILENO) < 0) _exit(1);
  close_range(STDOUT_FILENO, ~0U, 0);
  if (chdir("/") != 0) _exit(1);
  std::set<pid_t> groups;
  Entry entry = 0;
  for (;;) {
    const ssize_t bytes = read(STDIN_FILENO, &entry, sizeof(entry));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof(entry)) break;
    if (entry > 0) {
      groups.insert(entry);
    } else {
      groups.erase(-entry);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

void Tell(int pipe, Entry entry) {
  while (write(pipe, &entry, sizeof(entry)) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGuard>> ProcessGuard::Start() {
  BRAID_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot fork a process that guards others");
  if (pid == 0) {
    close(pipe.write_end.number());
    Guard(pipe.read_end.number());
  }
  return std::unique_ptr<ProcessGuard>(new ProcessGuard(std::move(pipe.write_end), pid));
}

ProcessGuard::~ProcessGuard() {
  pipe_.Close();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ProcessGuard::Forget(pid_t group) const { Tell(pipe_.number(), -group); }

void GuardOwnGroup(int guard_descriptor) { Tell(guard_descriptor, getpid()); }

}  // namespace braid
