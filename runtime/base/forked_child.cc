#include "runtime/base/forked_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/process.h"
#include "runtime/base/thread_limit.h"

namespace braid {
namespace {

// A thread that was joined leaves the kernel's list a little later.
constexpr int kLooksForThreads = 200;
constexpr std::chrono::milliseconds kBetweenLooks(1);

constexpr size_t kMostNamedThreads = 5;

bool HasOtherThreads() {
  for (int i = 0; i < kLooksForThreads; ++i) {
    if (CountThreads() <= 1) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

// Of all but the first, which is the program's own.
std::string NamesOfThreads() {
  std::vector<pid_t> threads;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    if (thread != getpid()) threads.push_back(thread);
  }
  std::ranges::sort(threads);
  std::vector<std::string> names;
  for (const pid_t thread : threads) {
    std::ifstream file(absl::StrFormat("/proc/self/task/%d/comm", thread));
    std::string name;
    if (std::getline(file, name)) names.push_back(absl::StrFormat("'%s'", name));
  }
  const size_t all = names.size();
  names.resize(std::min(all, kMostNamedThreads));
  if (names.size() < all) names.push_back(absl::StrFormat("%d more", all - names.size()));
  return absl::StrJoin(names, ", ");
}

void FlushStandardStreams() {
  std::cout << std::flush;
  std::clog << std::flush;
  std::fflush(nullptr);
}

[[noreturn]] void BecomeChild(pid_t starter, const std::function<int()>& run) {
  // The starter may have died before the kernel knew that we care.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != starter) _exit(128 + SIGKILL);
  const int code = run();
  FlushStandardStreams();
  _exit(code);
}

}  // namespace

absl::Status CheckMayFork(std::string_view what) {
  if (ForgetsChildren()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: SIGCHLD is ignored here, so the end of its processes would not be "
                        "seen; set it to SIG_DFL",
                        std::string(what)));
  }
  if (!HasOtherThreads()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s forks, and this process has %d threads: in the children there would be one, and locks "
      "that the others hold (%s) would stay locked; call it before anything that starts threads, "
      "such as a session or a world",
      std::string(what), CountThreads(), NamesOfThreads()));
}

absl::StatusOr<pid_t> ForkChild(const std::function<int()>& run) {
  FlushStandardStreams();
  const pid_t starter = getpid();
  const pid_t child = fork();
  if (child == 0) BecomeChild(starter, run);
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot fork");
  return child;
}

}  // namespace braid
