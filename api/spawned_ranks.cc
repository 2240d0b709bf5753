#include "api/spawned_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace braid::dist {
namespace {

// From the first failure on. A world that fails ends its ranks within less.
constexpr Nanoseconds kRanksSettle = kSecond;
// From SIGTERM on.
constexpr Nanoseconds kRanksKillAfter = 1500 * kMillisecond;

}  // namespace

SpawnedRanks::SpawnedRanks(Reactor* reactor, std::function<void()> on_end)
    : reactor_(reactor), on_end_(std::move(on_end)) {}

SpawnedRanks::~SpawnedRanks() {
  for (Rank& rank : ranks_) StopReading(rank);
  if (term_timer_.has_value()) reactor_->CancelTimer(*term_timer_);
  if (kill_timer_.has_value()) reactor_->CancelTimer(*kill_timer_);
}

void SpawnedRanks::Watch(std::vector<SpawnedRank> ranks) {
  ranks_.resize(ranks.size());
  running_ = static_cast<int>(ranks.size());
  absl::Status status;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.pipe = std::move(ranks[i].report);
    status.Update(MakeNonBlocking(rank.pipe));
    status.Update(reactor_->Watch(rank.pipe.number(), {.readable = true},
                                  [this, &rank](Reactor::Readiness) { Read(rank); }));
    auto process = Process::Adopt(
        reactor_, ranks[i].pid,
        [this, number = static_cast<int>(i)](ExitStatus end) { OnRankEnd(number, end); });
    if (process.ok()) {
      rank.process = *std::move(process);
    } else {
      status.Update(process.status());  // and it has ended
      --running_;
    }
  }
  if (!status.ok()) Refuse(status);
  // The caller is not done with this yet.
  if (running_ == 0) reactor_->Post([this] { on_end_(); });
}

void SpawnedRanks::Refuse(const absl::Status& reason) {
  if (first_.status.ok()) first_.status = reason;
  SignalAll(SIGKILL);
}

// Whoever types Ctrl-C sends SIGINT to the ranks as well, and a terminal that goes SIGHUP.
void SpawnedRanks::OnSignal(int signal) {
  if (std::exchange(signal_, signal) != 0) return SignalAll(SIGKILL);
  EndAll(signal == SIGTERM ? 0 : kRanksSettle);
}

void SpawnedRanks::Read(Rank& rank) {
  char buffer[4096];
  while (rank.pipe.is_open()) {
    const ssize_t bytes = read(rank.pipe.number(), buffer, sizeof(buffer));
    if (bytes < 0) return;  // nothing for now
    if (bytes == 0) return StopReading(rank);
    rank.report.append(buffer, static_cast<size_t>(bytes));
  }
}

void SpawnedRanks::StopReading(Rank& rank) {
  if (!rank.pipe.is_open()) return;
  reactor_->Unwatch(rank.pipe.number());
  rank.pipe.Close();
}

void SpawnedRanks::OnRankEnd(int number, const ExitStatus& end) {
  Rank& rank = ranks_[number];
  --running_;
  // What it started itself may hold the other end of the pipe for longer.
  Read(rank);
  StopReading(rank);
  RankFailure failure = FailureOf(number, end, rank.report, reactor_->Now());
  if (!failure.status.ok() && !is_signalled_) {
    if (first_.status.ok() || failure.IsBefore(first_)) first_ = std::move(failure);
    EndAll(kRanksSettle);
  }
  FinishIfDone();
}

void SpawnedRanks::EndAll(Nanoseconds after) {
  if (term_timer_.has_value()) {
    if (after > 0) return;
    reactor_->CancelTimer(*term_timer_);
    reactor_->CancelTimer(*kill_timer_);
  }
  term_timer_ = reactor_->RunAfter(after, [this] { SignalAll(SIGTERM); });
  kill_timer_ = reactor_->RunAfter(after + kRanksKillAfter, [this] { SignalAll(SIGKILL); });
}

void SpawnedRanks::SignalAll(int signal) {
  is_signalled_ = true;
  for (const Rank& rank : ranks_) {
    if (rank.process != nullptr) rank.process->Signal(signal);
  }
}

void SpawnedRanks::FinishIfDone() {
  if (running_ == 0) on_end_();
}

}  // namespace braid::dist
