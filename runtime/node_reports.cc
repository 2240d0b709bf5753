// What a Node says of itself: its state for reports, its stalls, its last events after a failure.
#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"
#include "runtime/node.h"
#include "runtime/reports/event_dump.h"
#include "runtime/reports/stall_report.h"

namespace braid {
namespace {

constexpr Nanoseconds kMostBetweenLooks = kSecond / 2;  // for a stall
// How long the master may take to take note of a stall.
constexpr Nanoseconds kNoteLimit = kSecond;

}  // namespace

using control::ControlMessage;

void Node::DumpEvents(const absl::Status& cause, std::function<void(std::string)> done) {
  reactor_->Post([this, cause, done = std::move(done)] {
    WriteEvents(cause);
    done(absl::IsCancelled(cause) ? "" : events_note_);
  });
}

void Node::WriteEvents(const absl::Status& cause) {
  const bool is_running = std::any_of(jobs_.begin(), jobs_.end(),
                                      [](const auto& job) { return job.second->is_running(); });
  // A user who ends a run knows why.
  const bool is_failure = !cause.ok() && !absl::IsCancelled(cause);
  if (!is_failure || !is_running || !events_note_.empty() || options_.event_dump.empty()) return;
  std::string text =
      absl::StrFormat("The last events of node %d, which was %s when it failed:\n%s\n",
                      options_.node, Phase(), std::string(cause.message()));
  for (const auto& [job, executor] : jobs_) text += executor->DescribeEvents();
  const auto path = WriteEventDump(options_.event_dump, options_.node, text);
  events_note_ =
      path.ok() ? "its last events: " + *path
                : "its last events could not be written: " + std::string(path.status().message());
}

absl::Status Node::WithEvents(const absl::Status& cause) {
  WriteEvents(cause);
  if (events_note_.empty() || absl::IsCancelled(cause)) return cause;
  return absl::Status(cause.code(),
                      absl::StrFormat("%s; %s", std::string(cause.message()), events_note_));
}

std::map<uint16_t, PeerCounters> Node::counters() const {
  return peers_ == nullptr ? std::map<uint16_t, PeerCounters>() : peers_->counters();
}

void Node::Describe(JobId job, std::function<void(control::NodeReport)> done) {
  const auto fill = [this, done = std::move(done)](control::NodeReport report) {
    if (const auto doing = loader_ != nullptr ? loader_->doing() : std::nullopt) {
      report.mutable_loading()->set_what(doing->what);
      report.mutable_loading()->set_time(reactor_->Now() - doing->since);
    }
    for (const auto& [peer, link] : counters()) {
      control::NodeReport::LinkState& state = *report.add_links();
      state.set_peer(peer);
      state.set_text(link.link);
    }
    done(std::move(report));
  };
  if (const auto it = jobs_.find(job); it != jobs_.end()) return it->second->Describe(fill);
  control::NodeReport report;
  report.set_node(options_.node);
  report.set_advanced(-1);
  fill(std::move(report));
}

void Node::SendStatus(const control::Status& request) {
  Describe(request.job(),
           [this, job = request.job(), number = request.request()](control::NodeReport report) {
             ControlMessage message;
             message.mutable_status()->set_job(job);
             message.mutable_status()->set_request(number);
             *message.mutable_status()->mutable_report() = std::move(report);
             Send(message);
           });
}

// Looks four times per limit and twice a second, so that a stall is told little late.
void Node::WatchForStall() {
  if (is_closing_ || options_.stall_timeout == 0) return;
  JobId running = 0;
  int64_t acts = 0;
  for (const auto& [job, executor] : jobs_) {
    if (executor->is_running()) running = job;
    acts += executor->acts_done();
  }
  const Nanoseconds now = reactor_->Now();
  if (running == 0 || acts != acts_seen_) {
    acts_seen_ = acts;
    advanced_ = now;
  } else if (now - advanced_ >= options_.stall_timeout) {
    TellStall(running, now - advanced_, /*is_loading=*/false);
    advanced_ = now;  // says it again after as long
  }
  if (const auto doing = loader_ != nullptr ? loader_->doing() : std::nullopt) {
    if (now - std::max(doing->since, loading_told_) >= options_.stall_timeout) {
      TellStall(doing->job, now - doing->since, /*is_loading=*/true);
      loading_told_ = now;
    }
  }
  reactor_->RunAfter(std::min(options_.stall_timeout / 4, kMostBetweenLooks),
                     [this] { WatchForStall(); });
}

void Node::TellStall(JobId job, Nanoseconds silence, bool is_loading) {
  is_stall_noted_ = false;
  ControlMessage message;
  message.mutable_stalled()->set_job(job);
  message.mutable_stalled()->set_silence(silence);
  message.mutable_stalled()->set_is_loading(is_loading);
  Send(message);
  reactor_->RunAfter(kNoteLimit, [this, job, silence, is_loading] {
    if (is_stall_noted_ || is_closing_) return;
    Describe(job, [this, silence, is_loading](control::NodeReport report) {
      SessionState state;
      state.cluster.is_whole = false;
      state.cluster.name_of = [](int node) { return absl::StrFormat("node %d", node); };
      state.cluster.reports.push_back(std::move(report));
      state.phase = Phase();
      state.phase_for = silence;
      state.is_stepping = !is_loading;
      LOG(WARNING) << absl::StrFormat(
          "node %d: %s, and the master does not answer; this node's part: %s", options_.node,
          StallTitle(is_loading, " here", silence), StallReport(state));
    });
  });
}

}  // namespace braid
