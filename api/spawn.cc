#include "api/spawn.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "api/command_line.h"
#include "api/rank_report.h"
#include "api/spawned_ranks.h"
#include "comm/control/local_ranks.h"
#include "runtime/base/catch_exceptions.h"
#include "runtime/base/forked_child.h"
#include "runtime/base/prefixed.h"
#include "runtime/base/signals.h"
#include "runtime/base/status.h"

namespace braid::dist {
namespace {

constexpr int kMostRanks = std::numeric_limits<uint16_t>::max();

using RankFunction = std::function<absl::Status(int rank)>;

void WriteReport(const Descriptor& pipe, const std::string& report) {
  size_t written = 0;
  while (written < report.size()) {
    const ssize_t bytes = write(pipe.number(), report.data() + written, report.size() - written);
    if (bytes < 0 && errno != EINTR) return;  // the starter has gone, and this process goes, too
    if (bytes > 0) written += static_cast<size_t>(bytes);
  }
}

// In the child.
int RunRank(const RankFunction& fn, int rank, const LocalRanks& ranks, const Descriptor& report,
            const Environment& environment) {
  for (const auto& [name, value] : VariablesOfRank(ranks, rank)) {
    setenv(name.c_str(), value.c_str(), /*replace=*/1);
  }
  absl::Status status = CatchExceptions("Spawn's function", [&] { return fn(rank); });
  const Nanoseconds when = environment.Now();
  if (status.ok()) status = FlushStandardOutput();
  WriteReport(report, FormatRankReport(status, when));
  return status.ok() ? 0 : 1;
}

// Those that end a process which says nothing else.
std::vector<int> SignalsThatEnd() {
  std::vector<int> ending;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current;
    if (sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
      ending.push_back(number);
    }
  }
  return ending;
}

// Returns when all have ended. `refused`: not all could be started.
absl::Status AwaitRanks(Environment& environment, std::vector<SpawnedRank> children,
                        const absl::Status& refused) {
  const std::unique_ptr<Event> has_ended = environment.MakeEvent();
  const std::unique_ptr<Event> is_gone = environment.MakeEvent();
  const auto await = [&environment](Event& event) { return environment.Await(event, kForever); };
  std::unique_ptr<SpawnedRanks> ranks;  // the reactor's
  absl::Status cause;
  int signal = 0;
  const std::unique_ptr<Reactor> reactor = environment.StartReactor("spawn");
  reactor->Post([&] {
    ranks = std::make_unique<SpawnedRanks>(reactor.get(), [&has_ended] { has_ended->Set(); });
    ranks->Watch(std::move(children));
    if (!refused.ok()) ranks->Refuse(refused);
  });
  absl::StatusOr<std::unique_ptr<SignalWatcher>> signals = SignalWatcher::Start(
      reactor.get(), SignalsThatEnd(), [&ranks](int number) { ranks->OnSignal(number); });
  if (!signals.ok()) {
    reactor->Post([&ranks, status = signals.status()] { ranks->Refuse(status); });
  }
  BRAID_RETURN_IF_ERROR(await(*has_ended));
  if (signals.ok()) signals->reset();
  reactor->Post([&] {
    cause = ranks->cause();
    signal = ranks->signal();
    ranks.reset();
    is_gone->Set();
  });
  BRAID_RETURN_IF_ERROR(await(*is_gone));
  if (signal == 0) return cause;
  raise(signal);
  return absl::CancelledError("the ranks were ended by " + DescribeSignal(signal));
}

}  // namespace

absl::Status Spawn(const RankFunction& fn, int ranks) {
  if (ranks < 1 || ranks > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("Spawn of %d ranks; 1 to %d were expected", ranks, kMostRanks));
  }
  if (!fn) return absl::InvalidArgumentError("Spawn was given no function");
  BRAID_RETURN_IF_ERROR(CheckMayFork("Spawn"));
  BRAID_ASSIGN_OR_RETURN(ReservedRanks reserved, ReserveLocalRanks(ranks));
  const std::unique_ptr<Environment> environment = MakeRealEnvironment();
  std::vector<SpawnedRank> children;
  const auto start = [&](int rank) -> absl::StatusOr<SpawnedRank> {
    BRAID_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
    BRAID_ASSIGN_OR_RETURN(const pid_t pid, ForkChild([&] {
                             // Only this process holds them.
                             children.clear();
                             reserved.port.Close();
                             pipe.read_end.Close();
                             return RunRank(fn, rank, reserved.ranks, pipe.write_end, *environment);
                           }));
    return SpawnedRank{.pid = pid, .report = std::move(pipe.read_end)};
  };
  absl::Status refused;
  for (int rank = 0; rank < ranks && refused.ok(); ++rank) {
    absl::StatusOr<SpawnedRank> child = start(rank);
    if (child.ok()) {
      children.push_back(*std::move(child));
    } else {
      refused = Prefixed(absl::StrFormat("rank %d of %d", rank, ranks), child.status());
    }
  }
  return AwaitRanks(*environment, std::move(children), refused);
}

}  // namespace braid::dist
