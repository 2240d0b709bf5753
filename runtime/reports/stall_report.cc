#include "runtime/reports/stall_report.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/control.pb.h"
#include "runtime/reports/load_table.h"

namespace braid {
namespace {

using control::ActorState;
using control::NodeReport;

constexpr size_t kMaxNodes = 20;       // rows of the table
constexpr size_t kMaxActorLines = 40;  // lines

std::string PlaceText(const control::ActorPlace& place) {
  return absl::StrFormat("%d/%d/%d", place.node(), place.thread(), place.task());
}

std::string ActorLine(const ClusterState& cluster, const NodeReport& report,
                      const ActorState& actor) {
  std::string line = absl::StrFormat(
      "%s: %s (%d/%d/%d), %d acts of %d:",
      ThreadName(cluster, static_cast<int>(report.node()), actor.thread()), actor.title(),
      report.node(), actor.thread(), actor.task(), actor.acts_done(), actor.acts_credited());
  switch (actor.doing()) {
    case ActorState::ACTING:
      line += " runs";
      for (const control::ActorPlace& peer : actor.awaits()) {
        line += ", awaits " + ThreadName(cluster, static_cast<int>(peer.node()), peer.thread());
      }
      break;
    case ActorState::DONE:
      line += " has nothing to do";
      break;
    case ActorState::NEXT:
      line += " acts next";
      break;
    default:
      break;
  }
  const char* separator = " waits for ";
  for (const control::WaitFor& wait : actor.waits()) {
    absl::StrAppendFormat(&line, "%s%s to %s register %d slot %d piece %d", separator,
                          PlaceText(wait.peer()), wait.is_ack() ? "release" : "fill",
                          wait.register_(), wait.slot(), wait.piece());
    separator = ", ";
  }
  return line + absl::StrFormat("; for %.1f s\n", Seconds(actor.since()));
}

// Since the last act of any node ended; negative: none did.
Nanoseconds Standing(const ClusterState& cluster) {
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  for (const NodeReport& report : cluster.reports) {
    if (report.advanced() >= 0) least = std::min(least, report.advanced());
  }
  return least == std::numeric_limits<Nanoseconds>::max() ? -1 : least;
}

// Users' code that the loading or the ending of a job is inside of, the longest first.
std::vector<std::string> HeldJobs(const ClusterState& cluster) {
  std::vector<const NodeReport*> held;
  for (const NodeReport& report : cluster.reports) {
    if (report.standing().time() >= kStanding) held.push_back(&report);
  }
  std::stable_sort(held.begin(), held.end(), [](const NodeReport* a, const NodeReport* b) {
    return a->standing().time() > b->standing().time();
  });
  std::vector<std::string> lines;
  for (const NodeReport* report : held) {
    lines.push_back(absl::StrFormat("%s has been %s for %.1f s",
                                    cluster.name_of(static_cast<int>(report->node())),
                                    report->standing().what(), Seconds(report->standing().time())));
  }
  return lines;
}

std::string FirstSentence(const SessionState& session, const WaitRoots& roots,
                          Nanoseconds standing) {
  if (!session.is_stepping) {
    const std::vector<std::string> held = HeldJobs(session.cluster);
    std::string text =
        held.empty() ? absl::StrFormat("no job runs: the session is %s, for %.1f s\n",
                                       session.phase, Seconds(session.phase_for))
                     : absl::StrFormat("everything waits for: %s\n", absl::StrJoin(held, "\n"));
    if (!roots.root.empty()) text += roots.root + "\n";
    return text;
  }
  const bool advances = standing >= 0 && standing < kStanding;
  std::string text =
      advances ? absl::StrFormat("%s, which advances; just now ", session.phase) : "";
  if (roots.root.empty()) return text + "nothing waits\n";
  if (roots.waiting_for_root == roots.waiting) {
    text += "everything waits for: ";
  } else {
    absl::StrAppendFormat(&text, "%d of %d actors that wait, wait for: ", roots.waiting_for_root,
                          roots.waiting);
  }
  return text + roots.root + "\n";
}

std::string LoadTable(const ClusterState& cluster) {
  const std::vector<NodeLoad> loads = MeasureLoads(cluster, kMaxNodes);
  if (loads.empty()) return "";
  size_t nodes = 0;
  for (const NodeReport& report : cluster.reports) nodes += report.threads().empty() ? 0 : 1;
  size_t width = 4;
  for (const NodeLoad& load : loads) width = std::max(width, cluster.name_of(load.node).size());
  std::string text = absl::StrFormat(
      "nodes, over the last 10 to 20 s: others waited for it, it waited, its busiest thread "
      "worked, its slowest act\n  %-*s  waited for  waits  busy  slowest\n",
      static_cast<int>(width), "node");
  for (const NodeLoad& load : loads) {
    absl::StrAppendFormat(&text, "  %-*s  %8.0f %%  %3.0f %%  %2.0f %%  %s",
                          static_cast<int>(width), cluster.name_of(load.node),
                          100 * load.waited_for, 100 * load.waiting, 100 * load.busy,
                          load.slowest.empty() ? "-" : load.slowest);
    if (!load.slowest.empty()) {
      absl::StrAppendFormat(&text, ": %.3f ms",
                            static_cast<double>(load.slowest_time) / kMillisecond);
    }
    text += "\n";
  }
  if (nodes > loads.size()) {
    absl::StrAppendFormat(&text, "  and %d nodes more, which were waited for less\n",
                          nodes - loads.size());
  }
  return text;
}

std::string ActorTable(const ClusterState& cluster) {
  size_t lines = 0, more = 0;
  std::string text;
  const auto add = [&](const auto& make_line) {
    if (lines == kMaxActorLines) {
      ++more;
      return;
    }
    if (lines++ == 0) text += "what each actor waits for:\n";
    text += "  " + make_line();
  };
  for (const NodeReport& report : cluster.reports) {
    for (const control::ThreadState& thread : report.threads()) {
      if (!thread.is_silent()) continue;
      add([&] {
        return absl::StrFormat(
            "%s: the thread does not answer; it is inside %s, for %.1f s\n",
            ThreadName(cluster, static_cast<int>(report.node()), thread.thread()),
            thread.running().empty() ? "no act" : thread.running(), Seconds(thread.running_for()));
      });
    }
  }
  for (const NodeReport& report : cluster.reports) {
    for (const ActorState& actor : report.actors()) {
      add([&] { return ActorLine(cluster, report, actor); });
    }
    more += report.actors_left_out();
  }
  if (more > 0) absl::StrAppendFormat(&text, "  and %d more\n", more);
  return text;
}

}  // namespace

std::string StallTitle(std::string_view standing, std::string_view where, Nanoseconds silence) {
  return absl::StrFormat(
      "%s%s for %.0f s (--stall_timeout)",
      standing.empty() ? "no act has ended" : std::string(standing) + " has stood", where,
      Seconds(silence));
}

std::string StallReport(const SessionState& session) {
  const ClusterState& cluster = session.cluster;
  const WaitRoots roots = FindRoots(cluster);
  const Nanoseconds standing = Standing(cluster);
  std::string text;
  for (const std::string& wait : session.waits) text += wait + "\n";
  text += FirstSentence(session, roots, standing);
  if (session.is_stepping && roots.chain.size() > 1) {
    text += "how it comes to that:\n";
    for (const std::string& line : roots.chain) text += "  " + line + "\n";
  }
  for (const std::string& other : roots.others) text += other + "\n";
  absl::StrAppendFormat(&text, "the session is %s, for %.1f s", session.phase,
                        Seconds(session.phase_for));
  if (session.is_stepping && standing >= 0) {
    absl::StrAppendFormat(&text, "; the last act ended %.1f s ago", Seconds(standing));
  }
  text += "\n";
  if (!session.failure.empty()) text += "failed: " + session.failure + "\n";
  return text + LoadTable(cluster) + ActorTable(cluster);
}

}  // namespace braid
