#include "runtime/base/thread_limit.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <latch>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/control_group.h"

namespace braid {
namespace {

std::string Limit(int resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return absl::StrCat(limit.rlim_cur);
}

std::string LimitOfGroup() {
  const uint64_t limit =
      ControlGroupLimit("", {.controller = "pids", .file_v1 = "pids.max", .file_v2 = "pids.max"});
  return limit == UINT64_MAX ? "unlimited" : absl::StrCat(limit);
}

void* WaitForAll(void* go) {
  static_cast<std::latch*>(go)->wait();
  return nullptr;
}

}  // namespace

size_t CountThreads() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/task", error);
  return error ? 0 : static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

absl::Status CheckThreads(int more) {
  std::latch go(1);
  std::vector<pthread_t> threads;
  int error = 0;
  while (error == 0 && threads.size() < static_cast<size_t>(more)) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, WaitForAll, &go);
    if (error == 0) threads.push_back(thread);
  }
  go.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d threads more are needed, and after %d of them the system starts none (%s); this process "
      "has %d; limits: ulimit -u (all of this user's) is %s, pids.max of the control group %s, "
      "ulimit -v (8 MB of it a thread) %s bytes; raise the one that is reached, or use fewer "
      "devices",
      more, threads.size(), strerror(error), CountThreads(), Limit(RLIMIT_NPROC), LimitOfGroup(),
      Limit(RLIMIT_AS)));
}

}  // namespace braid
