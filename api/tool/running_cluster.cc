#include "api/tool/running_cluster.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace braid {
namespace {

// Counted from the first failure or signal. Nodes that lose a peer end by themselves within three
// seconds, and say whom they lost.
constexpr Nanoseconds kTermAfter = 3 * kSecond;
constexpr Nanoseconds kKillClusterAfter = 5 * kSecond;
// Output that nobody takes is waited for so long once all nodes have ended, if launch was signalled
// again before they had.
constexpr Nanoseconds kDrainAfter = kSecond;

// By a signal, or with the ssh that held it. Programs that return by themselves have lower codes.
bool WasEnded(const ExitStatus& status) { return status.ShellCode() > 128; }

// What the node printed and nobody has seen, or "".
std::string UnseenOutput(const NodeProcess& node) {
  const std::string text(node.tail().text());
  if (!node.is_output_kept() || text.empty()) return "";
  return absl::StrFormat("braid launch: %s printed%s:\n%s%s", node.Describe(),
                         node.tail().is_cut() ? " last" : "", text,
                         text.ends_with('\n') ? "" : "\n");
}

// As shells say it.
int ExitCodeOf(const absl::Status& status) { return absl::IsNotFound(status) ? 127 : 126; }

}  // namespace

RunningCluster::RunningCluster(Reactor* reactor, Options options)
    : reactor_(reactor),
      options_(std::move(options)),
      out_(reactor, STDOUT_FILENO,
           {.on_drained = [this] { OnDrained(); }, .on_broken = [this] { OnBroken(); }}),
      err_(reactor, STDERR_FILENO,
           {.on_drained = [this] { OnDrained(); }, .on_broken = [this] { OnBroken(); }}) {}

RunningCluster::~RunningCluster() {
  if (term_timer_.has_value()) reactor_->CancelTimer(*term_timer_);
  if (kill_timer_.has_value()) reactor_->CancelTimer(*kill_timer_);
  if (drain_timer_.has_value()) reactor_->CancelTimer(*drain_timer_);
}

void RunningCluster::Start() {
  is_started_ = true;
  err_.Write(options_.preface);
  for (NodeCommand& command : options_.commands) {
    if (is_ending()) break;
    StartNode(std::move(command));
  }
  options_.commands.clear();
  FinishIfDone();
}

void RunningCluster::StartNode(NodeCommand command) {
  using Kind = NodeProcess::Output::Kind;
  const int rank = command.rank;
  const std::string name = NameNode(command);
  const Kind kind = options_.tag_output ? Kind::kTagged
                    : rank == 0         ? Kind::kInherited
                                        : Kind::kKept;
  absl::StatusOr<std::unique_ptr<NodeProcess>> node = NodeProcess::Start(
      {.reactor = reactor_, .guard = options_.guard}, std::move(command),
      {.kind = kind, .out = &out_, .err = &err_},
      [this, number = nodes_.size()](ExitStatus status) { OnNodeEnd(number, status); });
  if (node.ok()) {
    nodes_.push_back(*std::move(node));
    ++running_;
    return;
  }
  Fail({.cause = absl::StrFormat("%s: %s", name, std::string(node.status().message())),
        .exit_code = ExitCodeOf(node.status()),
        .when = reactor_->Now()});
  SignalAll(SIGTERM);  // they would wait for it
}

void RunningCluster::OnNodeEnd(size_t number, ExitStatus status) {
  --running_;
  const NodeProcess& node = *nodes_[number];
  if (!status.ok()) {
    // Who loses a peer returns an error, and on this machine that is known before ssh brings the
    // end of the peer itself. What was ended, and not by this launch, did not end because of
    // others.
    Fail({.cause =
              absl::StrFormat("%s failed first: %s", node.Describe(), node.DescribeFailure(status)),
          .exit_code = status.ShellCode(),
          .output = UnseenOutput(node),
          .is_own = WasEnded(status) && !has_signalled_,
          .when = node.ended_at()});
  }
  FinishIfDone();
}

void RunningCluster::Fail(LaunchFailure failure) {
  if (!first_.has_value() || failure.CountsBefore(*first_)) {
    first_ = std::move(failure);
    if (!was_signalled_) options_.on_failure(*first_);
  }
  EndSoon();
}

void RunningCluster::EndSoon() {
  if (is_ending()) return;
  term_timer_ = reactor_->RunAfter(kTermAfter, [this] { SignalAll(SIGTERM); });
  KillLater("the first failure");
}

void RunningCluster::OnSignal(int signal) {
  const bool kills = was_interrupted_ && signal == SIGINT;
  was_interrupted_ = was_interrupted_ || signal == SIGINT;
  SignalAll(kills ? SIGKILL : signal);
  if (!is_ending()) {
    was_signalled_ = true;
    KillLater(DescribeSignal(signal));
    // Before all nodes were started: none may have the chance to return a code.
    if (!is_started_) exit_code_ = ExitStatus{.signal = signal}.ShellCode();
  } else if (is_started_ && running_ == 0) {
    Finish();  // without the output that nobody takes
  } else {
    is_impatient_ = true;
  }
}

void RunningCluster::KillLater(const std::string& reason) {
  kill_timer_ = reactor_->RunAfter(kKillClusterAfter, [this, reason] {
    for (const auto& node : nodes_) {
      if (node->has_ended()) continue;
      err_.Write(absl::StrFormat("braid launch: %s has not ended %d s after %s and is killed\n",
                                 node->Describe(), kKillClusterAfter / kSecond, reason));
    }
    SignalAll(SIGKILL);
  });
}

void RunningCluster::SignalAll(int signal) {
  has_signalled_ = true;
  for (const auto& node : nodes_) node->Signal(signal);
}

void RunningCluster::OnDrained() {
  for (const auto& node : nodes_) node->ResumeOutput();
  FinishIfDone();
}

void RunningCluster::OnBroken() {
  if (is_ending()) return;
  const std::string place = options_.place.empty() ? "" : options_.place + ": ";
  Fail({.cause = place + "nobody reads its output any more",
        .exit_code = ExitStatus{.signal = SIGPIPE}.ShellCode(),
        .when = reactor_->Now()});
  SignalAll(SIGTERM);
}

void RunningCluster::FinishIfDone() {
  if (!is_started_ || running_ > 0) return;
  if (out_.is_drained() && err_.is_drained()) {
    Finish();
  } else if (is_impatient_ && !drain_timer_.has_value()) {
    drain_timer_ = reactor_->RunAfter(kDrainAfter, [this] { Finish(); });
  }
}

void RunningCluster::Finish() {
  if (is_finished_) return;
  is_finished_ = true;
  const int failed = first_.has_value() ? first_->exit_code : 0;
  options_.on_end(exit_code_ != 0 ? exit_code_ : failed);
}

}  // namespace braid
