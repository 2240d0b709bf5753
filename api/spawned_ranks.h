// The child processes of dist::Spawn while they run: watched, ended together when one fails.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "api/rank_report.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/process.h"
#include "runtime/base/reactor.h"

namespace braid::dist {

struct SpawnedRank {
  pid_t pid = 0;
  Descriptor report;  // the read end of a pipe that it writes its report into
};

// On the reactor's thread only.
class SpawnedRanks {
 public:
  // `on_end` is called once, when no rank runs any more; not inside Watch.
  SpawnedRanks(Reactor* reactor, std::function<void()> on_end);
  ~SpawnedRanks();
  SpawnedRanks(const SpawnedRanks&) = delete;
  SpawnedRanks& operator=(const SpawnedRanks&) = delete;

  // Takes them over. Once.
  void Watch(std::vector<SpawnedRank> ranks);
  // Kills them at once: not all could be started, or they cannot be watched.
  void Refuse(const absl::Status& reason);
  // That this process was sent.
  void OnSignal(int signal);

  // Once all have ended: why, if they were refused or one failed.
  const absl::Status& cause() const { return first_.status; }
  int signal() const { return signal_; }  // the first that was sent, or 0

 private:
  struct Rank {
    Descriptor pipe;
    std::string report;
    std::unique_ptr<Process> process;
  };

  void Read(Rank& rank);
  void StopReading(Rank& rank);
  void OnRankEnd(int number, const ExitStatus& end);
  void EndAll(Nanoseconds after);
  void SignalAll(int signal);
  void FinishIfDone();

  Reactor* const reactor_;
  const std::function<void()> on_end_;
  std::vector<Rank> ranks_;  // its size does not change
  int running_ = 0;
  RankFailure first_;
  int signal_ = 0;
  bool is_signalled_ = false;  // what fails from now on fails by this process
  std::optional<TimerId> term_timer_;
  std::optional<TimerId> kill_timer_;
};

}  // namespace braid::dist
