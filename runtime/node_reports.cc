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
  // A user who ends a run knows why.
  const bool is_failure = !cause.ok() && !absl::IsCancelled(cause);
  if (!is_failure || !jobs_->running().has_value() || !events_note_.empty() ||
      options_.event_dump.empty())
    return;
  std::string text =
      absl::StrFormat("The last events of node %d, which was %s when it failed:\n%s\n",
                      options_.node, Phase(), std::string(cause.message()));
  text += jobs_->DescribeEvents();
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
    if (const auto standing = jobs_->standing()) {
      report.mutable_standing()->set_what(standing->what);
      report.mutable_standing()->set_time(reactor_->Now() - standing->since);
    }
    for (const auto& [peer, link] : counters()) {
      control::NodeReport::LinkState& state = *report.add_links();
      state.set_peer(peer);
      state.set_text(link.link);
    }
    done(std::move(report));
  };
  jobs_->Describe(job, fill);
}

void Node::SendStatus(const control::Status& request) {
  Describe(request.job(),
           [this, job = request.job(), number = request.request()](control::NodeReport report) {
             ControlMessage message;
             message.mutable_status()->set_job(job);
             message.mutable_status()->set_request(number);
             *message.mutable_status()->mutable_report() = std::move(report);
             agent_->Send(message);
           });
}

// Looks four times per limit and twice a second, so that a stall is told little late.
void Node::WatchForStall() {
  if (options_.stall_timeout == 0) return;
  const JobId running = jobs_->running().value_or(0);
  const int64_t acts = jobs_->acts_done();
  const Nanoseconds now = reactor_->Now();
  if (running == 0 || acts != acts_seen_) {
    acts_seen_ = acts;
    advanced_ = now;
  } else if (now - advanced_ >= options_.stall_timeout) {
    TellStall(running, "", now - advanced_);
    advanced_ = now;  // says it again after as long
  }
  if (const auto standing = jobs_->standing()) {
    if (now - std::max(standing->since, standing_told_) >= options_.stall_timeout) {
      TellStall(standing->job, standing->phase, now - standing->since);
      standing_told_ = now;
    }
  }
  next_look_ = reactor_->RunAfter(std::min(options_.stall_timeout / 4, kMostBetweenLooks),
                                  [this] { WatchForStall(); });
}

void Node::TellStall(JobId job, std::string_view standing, Nanoseconds silence) {
  is_stall_noted_ = false;
  ControlMessage message;
  message.mutable_stalled()->set_job(job);
  message.mutable_stalled()->set_silence(silence);
  message.mutable_stalled()->set_standing(std::string(standing));
  agent_->Send(message);
  reactor_->RunAfter(kNoteLimit, [this, job, silence, standing = std::string(standing)] {
    if (is_stall_noted_ || !agent_->is_serving()) return;
    Describe(job, [this, silence, standing](control::NodeReport report) {
      SessionState state;
      state.cluster.is_whole = false;
      state.cluster.name_of = [](int node) { return absl::StrFormat("node %d", node); };
      state.cluster.reports.push_back(std::move(report));
      state.phase = Phase();
      state.phase_for = silence;
      state.is_stepping = standing.empty();
      LOG(WARNING) << absl::StrFormat(
          "node %d: %s, and the master does not answer; this node's part: %s", options_.node,
          StallTitle(standing, " here", silence), StallReport(state));
    });
  });
}

}  // namespace braid
