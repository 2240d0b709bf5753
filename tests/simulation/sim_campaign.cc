#include "tests/simulation/sim_campaign.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

// Of the leak checker, where the program has one: prints what it finds; not 0 if it found any.
extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
using Losses = std::vector<double>;

// Seeds after which tables that grow once (of the allocator, of protobuf) have their size.
constexpr uint64_t kWarmUp = 8;
// What may come and go in caches, whatever the number of seeds.
constexpr int64_t kHeapSlack = 64 * 1024;
constexpr size_t kMaxLosses = 64;

// Zero under a sanitizer.
int64_t HeapInUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

std::string Describe(const Losses& losses) {
  return absl::StrJoin(losses, ", ", [](std::string* out, double loss) {
    absl::StrAppendFormat(out, "%.17g", loss);
  });
}

// What a process tells the one that watches it: memory shared by both, read while it is written for
// `done` and `seed` alone.
struct Report {
  volatile uint64_t seed = 0;  // that runs now
  volatile uint64_t done = 0;  // seeds
  bool has_failed = false;
  char failure[8192] = {};
  size_t num_losses = 0;
  double losses[kMaxLosses] = {};  // of the last seed

  void Fail(const std::string& what) {
    std::strncpy(failure, what.c_str(), sizeof(failure) - 1);
    has_failed = true;
  }
};

// Seeds first, first + stride, ... below end, and the losses that they must have; empty: any.
struct Share {
  uint64_t first = 0, end = 0, stride = 1;
  Losses losses = {};
};

void RunShare(SimRunner& runner, const Share& share, Report& report) {
  int64_t heap = 0;
  for (uint64_t seed = share.first; seed < share.end; seed += share.stride) {
    report.seed = seed;
    if (report.done == kWarmUp) heap = HeapInUse();
    const auto run = runner.Run(seed);
    if (!run.ok()) return report.Fail(run.status().ToString());
    if (!share.losses.empty() && *run != share.losses) {
      return report.Fail(absl::StrFormat("its losses are %s; the first seed's were %s",
                                         Describe(*run), Describe(share.losses)));
    }
    report.num_losses = std::min(run->size(), kMaxLosses);
    std::copy_n(run->begin(), report.num_losses, report.losses);
    report.done = report.done + 1;
  }
  if (__lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0) {
    return report.Fail("the leak checker found leaks, printed above");
  }
  if (report.done <= kWarmUp) return;
  const auto seeds = static_cast<int64_t>(report.done - kWarmUp);
  if (const int64_t grown = HeapInUse() - heap; grown > kHeapSlack) {
    report.Fail(absl::StrFormat("%d seeds left %d bytes on the heap, %.1f each", seeds, grown,
                                static_cast<double>(grown) / static_cast<double>(seeds)));
  }
}

struct Failure {
  uint64_t seed = 0;
  std::string what;
};

// Processes, one a share, that share memory with this one for their reports.
class Processes {
 public:
  explicit Processes(size_t number) : bytes_(number * sizeof(Report)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory_ != MAP_FAILED) << "no memory to share with " << number << " processes";
  }
  ~Processes() { munmap(memory_, bytes_); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void Start(SimRunner& runner, const Share& share) {
    Worker worker;
    worker.report = new (static_cast<Report*>(memory_) + workers_.size()) Report;
    worker.process = fork();
    PCHECK(worker.process >= 0) << "no process for seed " << share.first;
    if (worker.process == 0) {
      RunShare(runner, share, *worker.report);
      _exit(0);  // what is to be cleaned up belongs to the process that forked
    }
    workers_.push_back(worker);
  }

  // Until all are over; when one fails the others are ended.
  std::optional<Failure> Watch(int64_t seconds_per_seed) {
    std::optional<Failure> failure;
    for (size_t left = workers_.size(); left > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (Worker& worker : workers_) {
        if (worker.is_over) continue;
        const auto what = Look(worker, seconds_per_seed);
        if (worker.is_over) --left;
        if (what.has_value() && !failure.has_value()) failure = {worker.report->seed, *what};
      }
      for (const Worker& worker : workers_) {
        if (failure.has_value() && !worker.is_over) kill(worker.process, SIGKILL);
      }
    }
    return failure;
  }

  const Report& report(size_t number) const { return *workers_[number].report; }

 private:
  struct Worker {
    pid_t process = 0;
    Report* report = nullptr;
    uint64_t seen = 0;  // report->done when it changed last
    Clock::time_point changed = Clock::now();
    bool is_over = false;
  };

  // What is wrong with it, if anything.
  static std::optional<std::string> Look(Worker& worker, int64_t seconds_per_seed) {
    int status = 0;
    if (waitpid(worker.process, &status, WNOHANG) == worker.process) {
      worker.is_over = true;
      if (worker.report->has_failed) return worker.report->failure;
      if (WIFSIGNALED(status)) {
        return absl::StrFormat("its process was killed by signal %d (%s)", WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
      }
      if (WEXITSTATUS(status) == 0) return std::nullopt;
      return absl::StrFormat("its process ended with status %d", WEXITSTATUS(status));
    }
    if (worker.report->done != worker.seen) {
      worker.seen = worker.report->done;
      worker.changed = Clock::now();
    }
    if (Clock::now() - worker.changed < std::chrono::seconds(seconds_per_seed)) return std::nullopt;
    return absl::StrFormat("it did not end within %d s: events without end", seconds_per_seed);
  }

  const size_t bytes_;
  void* memory_ = nullptr;
  std::vector<Worker> workers_;
};

}  // namespace

CampaignResult RunCampaign(SimRunner& runner, const CampaignOptions& options) {
  CampaignResult result;
  const auto began = Clock::now();
  const auto end = [&](const std::optional<Failure>& failure) {
    if (failure.has_value()) {
      result.failure = failure->what;
      result.failing_seed = failure->seed;
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return result;
  };
  {
    Processes first(1);
    first.Start(runner, {.first = options.first_seed, .end = options.first_seed + 1});
    const auto failure = first.Watch(options.seconds_per_seed);
    if (failure.has_value()) return end(failure);
    const Report& report = first.report(0);
    result.losses.assign(report.losses, report.losses + report.num_losses);
  }
  const uint64_t jobs = std::min<uint64_t>(std::max(1, options.jobs), options.seeds);
  Processes processes(jobs);
  for (uint64_t job = 0; job < jobs; ++job) {
    processes.Start(runner, {.first = options.first_seed + job,
                             .end = options.first_seed + options.seeds,
                             .stride = jobs,
                             .losses = result.losses});
  }
  return end(processes.Watch(options.seconds_per_seed));
}

}  // namespace braid
