#include "runtime/reports/load_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/control.pb.h"
#include "runtime/executor.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// Who waits for one that waits itself, waits for whom that one waits for. So each thread is a state
// of a Markov chain: it goes on to another with the share of time for which it waited for that one,
// and ends where it is with the rest, its work. Where walks from a node's compute threads end says
// whom they waited for in the end.
constexpr int kSteps = 64;

struct Step {
  size_t to = 0;
  double share = 0;
};

struct Thread {
  uint16_t node = 0;
  bool is_start = false;  // computes, and its node has answered
  double end = 1;         // share of its own work
  double waiting = 0;
  double busy = 0;
  std::vector<Step> steps;
};

class Walks {
 public:
  explicit Walks(const ClusterState& cluster) {
    for (const control::NodeReport& report : cluster.reports) {
      for (const control::ThreadState& state : report.threads()) AddThread(report.node(), state);
    }
  }

  const std::vector<Thread>& threads() const { return threads_; }

  // For each thread, how likely its walk ends on `node`.
  std::vector<double> EndsOn(uint16_t node) const {
    std::vector<double> ends(threads_.size(), 0.0);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> next(threads_.size(), 0.0);
      for (size_t i = 0; i < threads_.size(); ++i) {
        const Thread& thread = threads_[i];
        next[i] = thread.node == node ? thread.end : 0.0;
        for (const Step& go : thread.steps) next[i] += go.share * ends[go.to];
      }
      ends = std::move(next);
    }
    return ends;
  }

  // Of the time of all compute threads, what each node's work takes.
  std::map<uint16_t, double> EndShares() const {
    std::vector<double> mass(threads_.size(), 0.0);
    for (size_t i = 0; i < threads_.size(); ++i) mass[i] = threads_[i].is_start ? 1.0 : 0.0;
    std::map<uint16_t, double> shares;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<double> next(threads_.size(), 0.0);
      for (size_t i = 0; i < threads_.size(); ++i) {
        shares[threads_[i].node] += mass[i] * threads_[i].end;
        for (const Step& go : threads_[i].steps) next[go.to] += mass[i] * go.share;
      }
      mass = std::move(next);
    }
    return shares;
  }

 private:
  size_t IndexOf(uint32_t node, uint32_t thread) {
    const auto [known, is_new] = index_of_.try_emplace({node, thread}, threads_.size());
    if (is_new) threads_.push_back({.node = static_cast<uint16_t>(node)});
    return known->second;
  }

  void AddThread(uint32_t node, const control::ThreadState& state) {
    const size_t index = IndexOf(node, state.thread());
    threads_[index].is_start = StreamOfThread(state.thread()) == StreamKind::kCompute;
    if (state.is_silent()) {
      threads_[index].busy = state.running().empty() ? 0 : 1;
      return;
    }
    const auto time = static_cast<double>(state.window() - state.for_program());
    if (time <= 0) return;
    std::vector<Step> steps;
    double waiting = 0;
    for (const control::ThreadState::Wait& wait : state.waits()) {
      const double share = static_cast<double>(wait.time()) / time;
      steps.push_back({IndexOf(wait.peer().node(), wait.peer().thread()), share});
      waiting += share;
    }
    Thread& thread = threads_[index];
    thread.steps = std::move(steps);
    thread.end = std::max(1.0 - waiting, 0.0);
    thread.waiting =
        std::clamp(static_cast<double>(state.idle() - state.for_program()) / time, 0.0, 1.0);
    thread.busy = 1.0 - thread.waiting;
  }

  std::vector<Thread> threads_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> index_of_;
};

}  // namespace

std::vector<NodeLoad> MeasureLoads(const ClusterState& cluster, size_t limit) {
  const Walks walks(cluster);
  std::map<uint16_t, double> shares = walks.EndShares();
  std::vector<NodeLoad> loads;
  for (const control::NodeReport& report : cluster.reports) {
    if (report.threads().empty()) continue;
    NodeLoad& load = loads.emplace_back();
    load.node = static_cast<uint16_t>(report.node());
    for (const control::ThreadState& state : report.threads()) {
      if (state.slowest_time() <= load.slowest_time) continue;
      load.slowest_time = state.slowest_time();
      load.slowest = state.slowest();
    }
  }
  // All nodes' exact figures would be as many walks: first those that matter.
  std::stable_sort(loads.begin(), loads.end(), [&](const NodeLoad& a, const NodeLoad& b) {
    return shares[a.node] > shares[b.node];
  });
  if (loads.size() > limit) loads.resize(limit);
  for (NodeLoad& load : loads) {
    const std::vector<double> ends = walks.EndsOn(load.node);
    int others = 0, own = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const Thread& thread = walks.threads()[i];
      if (thread.node == load.node) load.busy = std::max(load.busy, thread.busy);
      if (!thread.is_start) continue;
      if (thread.node == load.node) {
        load.waiting += thread.waiting;
        ++own;
      } else {
        load.waited_for += ends[i];
        ++others;
      }
    }
    load.waiting /= std::max(own, 1);
    load.waited_for /= std::max(others, 1);
  }
  std::stable_sort(loads.begin(), loads.end(), [](const NodeLoad& a, const NodeLoad& b) {
    return a.waited_for > b.waited_for;
  });
  return loads;
}

}  // namespace braid
