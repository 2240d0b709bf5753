#include "runtime/reports/wait_graph.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/control.pb.h"
#include "runtime/executor.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

using control::ActorPlace;
using control::ActorState;
using control::NodeReport;
using control::ThreadState;
using control::WaitFor;

constexpr size_t kMaxChain = 16;  // lines, the root's included
constexpr size_t kMaxOthers = 3;
constexpr size_t kMaxRoots = 64;  // that are compared
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// In the order in which they are preferred as the root, the least first.
enum class Kind : uint8_t {
  kWaiting,
  kElsewhere,  // an actor of a node that was not asked, or one that its node left out
  kNext,
  kDone,
  kMessage,  // a message, or bytes, that left one node and did not reach the other
  kActing,   // an act that goes on outside its thread
  kThread,   // is inside an act
  kNode,     // does not answer
};

struct Edge {
  size_t to = 0;
  const WaitFor* wait = nullptr;  // nullptr: an act under way waits for a peer
};

struct Vertex {
  Kind kind = Kind::kWaiting;
  int node = -1;
  std::string name;  // of an actor: with its place; of others: the whole sentence
  const ActorState* actor = nullptr;
  std::vector<Edge> edges;
  std::vector<size_t> waiters;  // whose edges lead here
};

class Graph {
 public:
  explicit Graph(const ClusterState& cluster) : cluster_(cluster) {
    for (const NodeReport& report : cluster.reports) AddActors(report);
    for (const NodeReport& report : cluster.reports) AddEdges(report);
    FindComponents();
  }

  WaitRoots Roots() {
    WaitRoots roots;
    for (const Vertex& vertex : vertices_) roots.waiting += IsWaiting(vertex) ? 1 : 0;
    std::vector<Candidate> candidates = Candidates();
    if (candidates.empty()) return roots;
    const Candidate& first = candidates[0];
    roots.root = Text(first.component);
    roots.waiting_for_root = first.waiting;
    roots.chain = Chain(first.component);
    for (size_t i = 1; i < candidates.size() && roots.others.size() < kMaxOthers; ++i) {
      if (candidates[i].waiting == 0 && candidates[i].kind < Kind::kNode) continue;
      roots.others.push_back(absl::StrFormat("%d also wait for: %s", candidates[i].waiting,
                                             Text(candidates[i].component)));
    }
    return roots;
  }

 private:
  // Vertices that all wait for each other, in a circle; mostly it is one alone.
  using Component = std::vector<size_t>;
  struct Candidate {
    Component component;
    Kind kind = Kind::kWaiting;  // the greatest of its vertices
    size_t waiting = 0;          // actors that wait for it in the end
  };
  using ActorKey = std::tuple<uint32_t, uint32_t, uint32_t>;  // node, thread, task

  static bool IsWaiting(const Vertex& vertex) {
    return vertex.actor != nullptr && !vertex.edges.empty();
  }

  size_t Add(Kind kind, int node, std::string name) {
    vertices_.push_back({.kind = kind, .node = node, .name = std::move(name)});
    return vertices_.size() - 1;
  }

  void AddActors(const NodeReport& report) {
    const int node = static_cast<int>(report.node());
    for (const ThreadState& thread : report.threads()) {
      if (!thread.is_silent()) continue;
      std::string text = ThreadName(cluster_, node, thread.thread());
      text += thread.running().empty()
                  ? ": its thread does not answer, and is inside no act"
                  : absl::StrFormat(": %s has been inside its kernel for %.1f s", thread.running(),
                                    Seconds(thread.running_for()));
      threads_[{report.node(), thread.thread()}] = Add(Kind::kThread, node, std::move(text));
    }
    for (const ActorState& actor : report.actors()) {
      const size_t vertex =
          Add(Kind::kWaiting, node,
              absl::StrFormat("%s: %s", ThreadName(cluster_, node, actor.thread()), actor.title()));
      vertices_[vertex].actor = &actor;
      if (actor.doing() == ActorState::ACTING) vertices_[vertex].kind = Kind::kActing;
      if (actor.doing() == ActorState::DONE) vertices_[vertex].kind = Kind::kDone;
      if (actor.doing() == ActorState::NEXT) vertices_[vertex].kind = Kind::kNext;
      actors_[{report.node(), actor.thread(), actor.task()}] = vertex;
      if (actor.collective() != 0) {
        collectives_[{report.node(), actor.thread(), actor.collective()}] = vertex;
      }
    }
    for (const NodeReport::LinkState& link : report.links()) {
      links_[{report.node(), link.peer()}] = link.text();
    }
  }

  void AddEdges(const NodeReport& report) {
    for (const ActorState& actor : report.actors()) {
      const size_t from = actors_.at({report.node(), actor.thread(), actor.task()});
      for (const WaitFor& wait : actor.waits()) {
        Connect(from, TargetOf(report.node(), wait), &wait);
      }
      for (const ActorPlace& peer : actor.awaits()) {
        Connect(from, TargetOf(report.node(), actor, peer), nullptr);
      }
    }
  }

  void Connect(size_t from, size_t to, const WaitFor* wait) {
    vertices_[from].edges.push_back({to, wait});
    vertices_[to].waiters.push_back(from);
  }

  // The node or thread that keeps `place` from answering.
  std::optional<size_t> SilenceAt(const ActorPlace& place) {
    if (const auto node = cluster_.silent.find(static_cast<uint16_t>(place.node()));
        node != cluster_.silent.end()) {
      return NodeVertex(node->first, node->second);
    }
    const auto thread = threads_.find({place.node(), place.thread()});
    if (thread != threads_.end()) return thread->second;
    return std::nullopt;
  }

  size_t NodeVertex(uint16_t node, Nanoseconds silence) {
    const auto known = nodes_.find(node);
    if (known != nodes_.end()) return known->second;
    std::string text = cluster_.name_of(node) + " does not answer";
    if (silence >= 0) absl::StrAppendFormat(&text, " since %.1f s", Seconds(silence));
    return nodes_[node] = Add(Kind::kNode, node, std::move(text));
  }

  size_t Elsewhere(const ActorPlace& place) {
    const auto known = elsewhere_.find({place.node(), place.thread(), 0});
    if (known != elsewhere_.end()) return known->second;
    const int node = static_cast<int>(place.node());
    std::string text = ThreadName(cluster_, node, place.thread());
    text += cluster_.is_whole ? ": an actor that its node left out of its report"
                              : ", which was not asked";
    return elsewhere_[{place.node(), place.thread(), 0}] =
               Add(Kind::kElsewhere, node, std::move(text));
  }

  // Something left `from` and did not reach `to`.
  size_t MessageVertex(uint32_t from, uint32_t to, const std::string& what) {
    const auto known = messages_.find({from, to});
    if (known != messages_.end()) return known->second;
    if (from == to) {
      return messages_[{from, to}] =
                 Add(Kind::kMessage, static_cast<int>(from),
                     absl::StrFormat("%s, which is on its way from thread to thread on %s", what,
                                     cluster_.name_of(static_cast<int>(from))));
    }
    const auto link = links_.find({from, to});
    return messages_[{from, to}] = Add(
               Kind::kMessage, static_cast<int>(from),
               absl::StrFormat(
                   "%s, which left %s and has not reached %s (link %s)", what,
                   cluster_.name_of(static_cast<int>(from)), cluster_.name_of(static_cast<int>(to)),
                   link == links_.end() ? absl::StrFormat("%d-%d", from, to) : link->second));
  }

  static bool HasPassed(const google::protobuf::RepeatedPtrField<control::EndCount>& counts,
                        const WaitFor& wait) {
    return std::any_of(counts.begin(), counts.end(), [&](const control::EndCount& end) {
      return end.register_() == wait.register_() && end.pieces() > wait.piece();
    });
  }

  size_t TargetOf(uint32_t node, const WaitFor& wait) {
    const ActorPlace& peer = wait.peer();
    if (const std::optional<size_t> silent = SilenceAt(peer)) return *silent;
    const auto found = actors_.find({peer.node(), peer.thread(), peer.task()});
    if (found == actors_.end()) return Elsewhere(peer);
    const ActorState& actor = *vertices_[found->second].actor;
    if (HasPassed(wait.is_ack() ? actor.acknowledged() : actor.sent(), wait)) {
      return MessageVertex(
          peer.node(), node,
          absl::StrFormat("the %s of register %d piece %d", wait.is_ack() ? "release" : "filling",
                          wait.register_(), wait.piece()));
    }
    return found->second;
  }

  size_t TargetOf(uint32_t node, const ActorState& actor, const ActorPlace& peer) {
    if (actor.collective() == 0) {  // bytes that the link has not taken
      if (cluster_.silent.contains(static_cast<uint16_t>(peer.node()))) return *SilenceAt(peer);
      return MessageVertex(node, peer.node(), actor.title());
    }
    if (const std::optional<size_t> silent = SilenceAt(peer)) return *silent;
    const auto found = collectives_.find({peer.node(), peer.thread(), actor.collective()});
    if (found == collectives_.end()) return Elsewhere(peer);
    if (peer.node() != node && vertices_[found->second].actor->acts_done() > actor.acts_done()) {
      return MessageVertex(peer.node(), node, "a frame of " + actor.title());
    }
    return found->second;
  }

  // Tarjan, "Depth-first search and linear graph algorithms", 1972; without recursion.
  void FindComponents() {
    component_of_.assign(vertices_.size(), kNone);
    std::vector<size_t> order(vertices_.size(), kNone), low(vertices_.size(), 0);
    std::vector<size_t> open;
    std::vector<std::pair<size_t, size_t>> path;  // (vertex, its next edge)
    size_t visited = 0;
    const auto visit = [&](size_t vertex) {
      order[vertex] = low[vertex] = visited++;
      open.push_back(vertex);
      path.emplace_back(vertex, 0);
    };
    for (size_t start = 0; start < vertices_.size(); ++start) {
      if (order[start] == kNone) visit(start);
      while (!path.empty()) {
        const size_t vertex = path.back().first;
        if (path.back().second < vertices_[vertex].edges.size()) {
          const size_t to = vertices_[vertex].edges[path.back().second++].to;
          if (order[to] == kNone) {
            visit(to);
          } else if (component_of_[to] == kNone) {
            low[vertex] = std::min(low[vertex], order[to]);
          }
          continue;
        }
        path.pop_back();
        if (!path.empty()) low[path.back().first] = std::min(low[path.back().first], low[vertex]);
        if (low[vertex] != order[vertex]) continue;
        Component component;
        do {
          component.push_back(open.back());
          component_of_[open.back()] = components_.size();
          open.pop_back();
        } while (component.back() != vertex);
        components_.push_back(std::move(component));
      }
    }
  }

  // Components from which no edge leads out, those first for which most wait.
  std::vector<Candidate> Candidates() {
    for (const auto& [node, silence] : cluster_.silent) NodeVertex(node, silence);
    while (component_of_.size() < vertices_.size()) {
      component_of_.push_back(components_.size());
      components_.push_back({component_of_.size() - 1});
    }
    std::vector<Candidate> candidates;
    for (size_t number = 0; number < components_.size(); ++number) {
      Candidate candidate{.component = components_[number]};
      bool is_sink = true;
      bool is_waited_for = candidate.component.size() > 1;
      for (size_t vertex : candidate.component) {
        candidate.kind = std::max(candidate.kind, vertices_[vertex].kind);
        is_waited_for = is_waited_for || !vertices_[vertex].waiters.empty();
        for (const Edge& edge : vertices_[vertex].edges) {
          is_sink = is_sink && component_of_[edge.to] == number;
        }
      }
      if (is_sink && (is_waited_for || candidate.kind >= Kind::kActing)) {
        candidates.push_back(std::move(candidate));
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.kind > b.kind; });
    if (candidates.size() > kMaxRoots) candidates.resize(kMaxRoots);
    for (Candidate& candidate : candidates) {
      for (const auto& [vertex, next] : WaitersOf(candidate.component)) {
        candidate.waiting += IsWaiting(vertices_[vertex]) ? 1 : 0;
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.waiting > b.waiting; });
    return candidates;
  }

  // All that wait for the component, itself included, the nearest first: (vertex, the next one on
  // its shortest way there).
  std::vector<std::pair<size_t, size_t>> WaitersOf(const Component& component) const {
    std::vector<std::pair<size_t, size_t>> found;
    std::vector<bool> is_known(vertices_.size(), false);
    for (size_t vertex : component) {
      found.emplace_back(vertex, kNone);
      is_known[vertex] = true;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t vertex = found[i].first;
      for (size_t waiter : vertices_[vertex].waiters) {
        if (is_known[waiter]) continue;
        is_known[waiter] = true;
        found.emplace_back(waiter, vertex);
      }
    }
    return found;
  }

  // From the nearest actor that nobody waits for; preferably on another node than the root.
  std::vector<std::string> Chain(const Component& component) const {
    const auto found = WaitersOf(component);
    std::map<size_t, size_t> next(found.begin(), found.end());
    const int home = vertices_[component[0]].node;
    size_t start = found.back().first;
    const auto is_end = [&](const auto& entry) { return vertices_[entry.first].waiters.empty(); };
    auto first = std::find_if(found.begin(), found.end(), [&](const auto& entry) {
      return is_end(entry) && vertices_[entry.first].node != home;
    });
    if (first == found.end()) first = std::find_if(found.begin(), found.end(), is_end);
    if (first != found.end()) start = first->first;
    std::vector<std::string> lines;
    for (size_t vertex = start; next.at(vertex) != kNone; vertex = next.at(vertex)) {
      lines.push_back(StepText(vertex, next.at(vertex)));
    }
    if (lines.size() >= kMaxChain) {
      const size_t left_out = lines.size() - (kMaxChain - 2);
      lines.erase(lines.begin() + kMaxChain / 2,
                  lines.begin() + static_cast<std::ptrdiff_t>(kMaxChain / 2 + left_out));
      lines.insert(lines.begin() + kMaxChain / 2, absl::StrFormat("... %d more ...", left_out));
    }
    lines.push_back(Text(component));
    return lines;
  }

  std::string StepText(size_t vertex, size_t next) const {
    const Vertex& from = vertices_[vertex];
    for (const Edge& edge : from.edges) {
      if (edge.to != next) continue;
      if (edge.wait == nullptr) {
        return absl::StrFormat("%s is in act %d and waits for", from.name, from.actor->acts_done());
      }
      return absl::StrFormat("%s waits for register %d piece %d to be %s by", from.name,
                             edge.wait->register_(), edge.wait->piece(),
                             edge.wait->is_ack() ? "released" : "filled");
    }
    return from.name;
  }

  std::string Text(const Component& component) const {
    if (component.size() > 1) return CycleText(component);
    const Vertex& vertex = vertices_[component[0]];
    const ActorState* actor = vertex.actor;
    switch (vertex.kind) {
      case Kind::kActing:
        return absl::StrFormat("%s has been under way for %.1f s", vertex.name,
                               Seconds(actor->since()));
      case Kind::kDone:
        return absl::StrFormat("%s, which has done all %d acts that it was told to do", vertex.name,
                               actor->acts_done());
      case Kind::kNext:
        return absl::StrFormat("%s, which is about to act", vertex.name);
      default:
        return vertex.name;
    }
  }

  bool HasJustMoved() const {
    return std::any_of(cluster_.reports.begin(), cluster_.reports.end(), [](const auto& report) {
      return report.advanced() >= 0 && report.advanced() < kStanding;
    });
  }

  std::string CycleText(const Component& component) const {
    std::set<int> nodes;
    bool is_collective = true;
    std::vector<std::string> names;
    for (size_t vertex : component) {
      const Vertex& member = vertices_[vertex];
      is_collective = is_collective && member.kind == Kind::kActing;
      nodes.insert(member.node);
      if (names.size() < kMaxChain) names.push_back(member.name);
    }
    if (is_collective) {
      std::vector<std::string> where;
      for (int node : nodes) where.push_back(cluster_.name_of(node));
      return absl::StrFormat("%s: every member is in it; frames between %s have not arrived",
                             vertices_[component[0]].actor->title(), absl::StrJoin(where, ", "));
    }
    // Threads are asked one after another: while they move, their answers need not fit.
    if (HasJustMoved()) {
      names.resize(std::min<size_t>(names.size(), 2));
      return absl::StrFormat("work that goes round between %d actors, such as %s", component.size(),
                             absl::StrJoin(names, " and "));
    }
    return absl::StrFormat(
        "a circle of %d that wait for each other, which the plan should not "
        "allow: %s",
        component.size(), absl::StrJoin(names, " <- "));
  }

  const ClusterState& cluster_;
  std::vector<Vertex> vertices_;
  std::map<ActorKey, size_t> actors_;
  std::map<ActorKey, size_t> collectives_;  // the last one is the collective
  std::map<ActorKey, size_t> elsewhere_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> threads_;   // (node, thread), silent
  std::map<uint16_t, size_t> nodes_;                          // silent
  std::map<std::pair<uint32_t, uint32_t>, size_t> messages_;  // (from, to)
  std::map<std::pair<uint32_t, uint32_t>, std::string> links_;
  std::vector<Component> components_;
  std::vector<size_t> component_of_;
};

}  // namespace

ClusterState::ClusterState() = default;
ClusterState::~ClusterState() = default;
ClusterState::ClusterState(ClusterState&&) = default;

std::string ThreadName(const ClusterState& cluster, int node, uint32_t thread) {
  constexpr const char* kThreads[kThreadsPerDevice] = {"", " (input)", " (transfer)"};
  return absl::StrFormat("%s, device %d%s", cluster.name_of(node), DeviceOfThread(thread),
                         kThreads[static_cast<int>(StreamOfThread(thread))]);
}

WaitRoots FindRoots(const ClusterState& cluster) { return Graph(cluster).Roots(); }

}  // namespace braid
