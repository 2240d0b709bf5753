// Small plans in every order of their events: each order ends, computes the same, gives all credits
// back, and never fills more slots than there are.
//
// Real are Actor, ActorThread (in its shuffled mode), MessageBus and RegisterRing; collectives run
// with their real hubs on the loopback. Threads and links are interleaved event by event.

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "comm/collective/collective_frame.h"
#include "gtest/gtest.h"
#include "tests/actor/actor_cluster.h"
#include "tests/comm/collective_case.h"
#include "tests/comm/comm_cluster.h"
#include "tests/simulation/explored_environment.h"
#include "tests/simulation/interleavings.h"

namespace braid {
namespace {

// Lends a Choice to one that wants to own it.
class BorrowedChoice final : public Choice {
 public:
  explicit BorrowedChoice(Choice* choice) : choice_(*choice) {}
  uint64_t Below(uint64_t n) override { return choice_.Below(n); }

 private:
  Choice& choice_;
};

// ---- graphs of actors --------------------------------------------------------------------------

struct SmallGraph {
  std::function<void(ActorCluster&)> build;
  int actors = 0;
  int threads = 1;
  int64_t steps = 2;
  bool knows_state = true;
};

using Values = std::vector<std::vector<int64_t>>;

// What all runs of one graph share.
struct Findings {
  std::optional<Values> values;            // of the first end
  std::map<RegisterId, uint32_t> fullest;  // slots in use
};

class GraphRun final : public ExploredRun {
 public:
  GraphRun(const SmallGraph& graph, Choice* order, Findings* findings)
      : graph_(graph),
        findings_(*findings),
        environment_(order),
        cluster_(&environment_, 0, [order] { return std::make_unique<BorrowedChoice>(order); }) {
    graph_.build(cluster_);
    EXPECT_EQ(cluster_.Start(), absl::OkStatus());
    at_start_ = Queues();
    cluster_.Run(graph_.steps);
  }

  bool Step() override { return environment_.Step(); }

  std::vector<int64_t> State() const override {
    std::vector<int64_t> state;
    if (!graph_.knows_state) return state;
    environment_.AppendState(&state);
    cluster_.AppendState(&state);
    return state;
  }

  absl::Status Check() const override {
    if (!cluster_.failures().empty()) return cluster_.failures()[0];
    if (cluster_.conflicts() != 0) return absl::InternalError("a slot was written while read");
    for (const ActorReport& report : cluster_.Describe()) {
      for (const QueueDepth& queue : report.queues) {
        if (queue.used > queue.slots) {
          return absl::InternalError(absl::StrFormat("register %d: %d of %d slots are in use",
                                                     queue.reg, queue.used, queue.slots));
        }
        uint32_t& fullest = findings_.fullest[queue.reg];
        fullest = std::max(fullest, queue.used);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckEnd() const override {
    for (const ActorReport& report : cluster_.Describe()) {
      if (report.acts_done == report.acts_credited) continue;
      std::string waits;
      for (const Wait& wait : report.waits) {
        absl::StrAppendFormat(&waits, " register %d", wait.reg);
      }
      return absl::InternalError(absl::StrFormat(
          "nothing can go on, and actor '%s' has done %d acts of %d; it waits for%s", report.name,
          report.acts_done, report.acts_credited, waits));
    }
    for (int thread = 0; thread < graph_.threads; ++thread) {
      if (cluster_.runs_done(thread) != std::vector<int64_t>{graph_.steps}) {
        return absl::InternalError(absl::StrFormat("thread %d did not report the run", thread));
      }
    }
    if (Queues() != at_start_) return absl::InternalError("credits did not come back");
    Values values;
    for (int actor = 0; actor < graph_.actors; ++actor) values.push_back(cluster_.values(actor));
    if (!findings_.values.has_value()) findings_.values = values;
    return *findings_.values == values ? absl::OkStatus()
                                       : absl::InternalError("another order, other values");
  }

 private:
  std::vector<uint32_t> Queues() const {
    std::vector<uint32_t> used;
    for (const ActorReport& report : cluster_.Describe()) {
      for (const QueueDepth& queue : report.queues) used.push_back(queue.used);
    }
    return used;
  }

  const SmallGraph& graph_;
  Findings& findings_;
  ExploredEnvironment environment_;
  mutable ActorCluster cluster_;
  std::vector<uint32_t> at_start_;
};

Exploration ExploreGraph(const std::string& name, const SmallGraph& graph, Findings* findings) {
  const Exploration found =
      Explore([&](Choice* order) { return std::make_unique<GraphRun>(graph, order, findings); });
  std::cout << name << ": " << found.ToString() << std::endl;
  return found;
}

// All orders are good; the findings.
Findings ExploreAll(const std::string& name, const SmallGraph& graph) {
  Findings findings;
  const Exploration found = ExploreGraph(name, graph, &findings);
  EXPECT_TRUE(found.is_complete) << name;
  EXPECT_EQ(found.failure, absl::OkStatus()) << name;
  if (graph.threads > 1) {
    EXPECT_GT(found.orders, 1) << name;
  }
  return findings;
}

SmallGraph TwoActors(uint32_t slots, bool is_on_two_threads, Completion completion) {
  return {[=](ActorCluster& cluster) {
            const int a = cluster.AddActor("a", {.completion = completion});
            const int b =
                cluster.AddActor("b", {.thread = static_cast<uint16_t>(is_on_two_threads)});
            cluster.AddRegister(a, {b}, {.slots = slots});
          },
          2, is_on_two_threads ? 2 : 1, 3};
}

TEST(ExplorationTest, TwoActorsWithOneAndTwoSlots) {
  for (const uint32_t slots : {1u, 2u}) {
    for (const bool is_on_two_threads : {false, true}) {
      for (const Completion completion : {Completion::kInside, Completion::kFromElsewhere}) {
        const Findings findings =
            ExploreAll(absl::StrFormat("two actors, %d slots, %d threads, acts end %s", slots,
                                       is_on_two_threads ? 2 : 1,
                                       completion == Completion::kInside ? "inside" : "elsewhere"),
                       TwoActors(slots, is_on_two_threads, completion));
        // Every slot is of use.
        EXPECT_EQ(findings.fullest, (std::map<RegisterId, uint32_t>{{0, slots}}));
      }
    }
  }
}

TEST(ExplorationTest, Diamond) {
  ExploreAll("diamond on three threads", {[](ActorCluster& cluster) {
                                            const int a = cluster.AddActor("a");
                                            const int b = cluster.AddActor("b", {.thread = 1});
                                            const int c = cluster.AddActor("c", {.thread = 2});
                                            const int d = cluster.AddActor("d");
                                            cluster.AddRegister(a, {b, c}, {.slots = 2});
                                            cluster.AddRegister(b, {d});
                                            cluster.AddRegister(c, {d});
                                          },
                                          4, 3, 2});
}

TEST(ExplorationTest, Accumulation) {
  ExploreAll("accumulation over three acts",
             {[](ActorCluster& cluster) {
                const int a = cluster.AddActor("a", {.acts_per_step = 3});
                const int b = cluster.AddActor("b", {.thread = 1, .acts_per_step = 3});
                const int c = cluster.AddActor("c");
                cluster.AddRegister(a, {b}, {.slots = 2});
                cluster.AddRegister(b, {c}, {.fill_period = 3});
              },
              3, 2, 2});
}

TEST(ExplorationTest, ALoopWithAnInitialToken) {
  ExploreAll("loop with a token, one slot read twice",
             {[](ActorCluster& cluster) {
                const int variable = cluster.AddActor("variable");
                const int forward = cluster.AddActor(
                    "forward",
                    {.thread = 1, .acts_per_step = 2, .completion = Completion::kFromElsewhere});
                const int update = cluster.AddActor("update");
                cluster.AddRegister(variable, {forward}, {.use_period = 2});
                cluster.AddRegister(variable, {update});
                cluster.AddRegister(forward, {update}, {.fill_period = 2});
                cluster.AddRegister(update, {variable}, {.tokens = 1});
              },
              3, 2, 3});
}

SmallGraph Transfer(uint32_t slots) {
  return {[slots](ActorCluster& cluster) {
            const int source = cluster.AddActor("source");
            const int transfer =
                cluster.AddActor("transfer", {.completion = Completion::kFromElsewhere});
            const int sink = cluster.AddActor("sink", {.node = 1});
            cluster.AddRegister(source, {transfer}, {.slots = slots});
            cluster.AddRegister(transfer, {sink}, {.slots = slots});
          },
          3, 2, 3};
}

TEST(ExplorationTest, ATransferToAnotherNodeIsAcknowledged) {
  for (const uint32_t slots : {1u, 2u}) {
    const Findings findings = ExploreAll(
        absl::StrFormat("transfer between two nodes, %d landing slots", slots), Transfer(slots));
    EXPECT_EQ(findings.fullest, (std::map<RegisterId, uint32_t>{{0, slots}, {1, slots}}));
  }
}

// No order is lost by what counts as one state.
TEST(ExplorationTest, StatesHaveAsManyOrdersAsThereAre) {
  for (SmallGraph graph : {TwoActors(1, true, Completion::kFromElsewhere), Transfer(1)}) {
    Findings findings;
    const Exploration merged = ExploreGraph("by states", graph, &findings);
    graph.knows_state = false;
    const Exploration all = ExploreGraph("one by one", graph, &findings);
    EXPECT_EQ(all.failure, absl::OkStatus());
    EXPECT_EQ(merged.orders, all.orders);
  }
}

// Forward and backward of two stages on two nodes, two micro-batches, a sum of gradients.
SmallGraph Pipeline(uint32_t stash_slots, uint32_t period_of_loss) {
  return {[=](ActorCluster& cluster) {
            const int fwd0 = cluster.AddActor("fwd0", {.acts_per_step = 2});
            const int fwd1 = cluster.AddActor("fwd1", {.node = 1, .acts_per_step = 2});
            const int loss =
                cluster.AddActor("loss", {.node = 1, .acts_per_step = 2 / period_of_loss});
            const int bwd1 = cluster.AddActor("bwd1", {.node = 1, .acts_per_step = 2});
            const int bwd0 = cluster.AddActor("bwd0", {.acts_per_step = 2});
            const int update = cluster.AddActor("update");
            cluster.AddRegister(fwd0, {bwd0}, {.slots = stash_slots});
            cluster.AddRegister(fwd0, {fwd1}, {.slots = 2});
            cluster.AddRegister(fwd1, {loss}, {.fill_period = period_of_loss});
            cluster.AddRegister(loss, {bwd1}, {.use_period = period_of_loss});
            cluster.AddRegister(bwd1, {bwd0});
            cluster.AddRegister(bwd0, {update}, {.fill_period = 2});
            cluster.AddRegister(update, {fwd0}, {.use_period = 2, .tokens = 1});
          },
          6, 2, 2};
}

TEST(ExplorationTest, APipelineOfTwoStagesAndTwoMicroBatches) {
  const Findings findings = ExploreAll("pipeline, two micro-batches", Pipeline(2, 1));
  EXPECT_EQ(findings.fullest.at(0), 2u) << "both micro-batches are under way";
}

// The search sees what is wrong: the loss is a mean over both micro-batches, but only one of them
// can be kept for the way back.
TEST(ExplorationTest, OneSlotTooFewIsFound) {
  ExploreAll("pipeline, mean of two micro-batches", Pipeline(2, 2));
  Findings findings;
  const Exploration found = ExploreGraph("the same, one slot too few", Pipeline(1, 2), &findings);
  EXPECT_EQ(found.failure.message(),
            "nothing can go on, and actor 'fwd0' has done 1 acts of 4; it waits for register 0");
}

// ---- collectives -------------------------------------------------------------------------------

// The first of everything until it is opened.
class Gate final : public Choice {
 public:
  explicit Gate(Choice* choice) : choice_(*choice) {}
  uint64_t Below(uint64_t n) override { return is_open_ ? choice_.Below(n) : 0; }
  void Open() { is_open_ = true; }

 private:
  Choice& choice_;
  bool is_open_ = false;
};

// One collective of members on nodes of their own, from its Start; joining them is not explored.
//
// A member is a function of what it was told, in order: frames that reached its node, writes of its
// that reached theirs, and when it looked. So these histories, with what is posted, are the state:
// orders that differ only in events of different members are one.
class CollectiveExploredRun final : public ExploredRun {
 public:
  CollectiveExploredRun(const CollectiveCase& c, Choice* order, bool knows_state,
                        std::optional<std::vector<std::byte>>* result)
      : knows_state_(knows_state),
        gate_(order),
        environment_(&gate_),
        result_(*result),
        histories_(c.layout.size()) {
    const auto transports = TransportCases();
    cluster_.emplace(environment_, transports[0], static_cast<int>(c.layout.size()));
    std::vector<Reactor*> reactors;
    for (size_t rank = 0; rank < c.layout.size(); ++rank) {
      streams_.push_back(environment_.StartReactor("stream"));
      reactors.push_back(streams_.back().get());
    }
    run_.emplace(*cluster_, c, 1, reactors);
    for (const absl::Status& status : cluster_->Connect()) EXPECT_EQ(status, absl::OkStatus());
    while (environment_.Step()) {
    }
    cluster_->ObserveFrames([this](int node, int peer, std::span<const std::byte> bytes) {
      const auto frame = DecodeCollectiveFrame(bytes);
      ASSERT_TRUE(frame.ok()) << frame.status();
      const bool is_chunk = frame->type == CollectiveFrame::Type::kChunk;
      Append(node, {peer, is_chunk, frame->slot, frame->piece, frame->index});
      if (is_chunk) Append(peer, {node, -1, frame->slot, frame->piece, frame->index});
    });
    run_->Start();
    gate_.Open();
  }

  ~CollectiveExploredRun() override {
    while (environment_.Step()) {
    }
  }

  bool Step() override {
    if (!environment_.Step()) return false;
    for (size_t rank = 0; rank < streams_.size(); ++rank) {
      if (environment_.last() == streams_[rank].get()) Append(rank, {-2});
    }
    return true;
  }
  std::vector<int64_t> State() const override {
    std::vector<int64_t> state;
    if (!knows_state_) return state;
    environment_.AppendState(&state);
    for (const auto& history : histories_) {
      state.push_back(-3);
      state.insert(state.end(), history.begin(), history.end());
    }
    return state;
  }
  absl::Status Check() const override { return cluster_->frame_error(); }
  absl::Status CheckEnd() const override {
    if (!run_->AllAnswered()) return absl::InternalError("nothing can go on");
    if (!result_.has_value()) {
      run_->Check();
      result_ = run_->Result();
    }
    return *result_ == run_->Result() ? absl::OkStatus()
                                      : absl::InternalError("another order, other bits");
  }

 private:
  void Append(size_t rank, std::initializer_list<int64_t> what) {
    histories_[rank].insert(histories_[rank].end(), what);
  }

  const bool knows_state_;
  Gate gate_;
  ExploredEnvironment environment_;
  std::optional<std::vector<std::byte>>& result_;
  std::vector<std::vector<int64_t>> histories_;  // by rank
  std::vector<std::unique_ptr<Reactor>> streams_;
  mutable std::optional<CommCluster> cluster_;
  std::optional<CollectiveRun> run_;
};

Exploration ExploreCollective(const std::string& name, const CollectiveCase& c, bool knows_state,
                              const ExploreOptions& options = {}) {
  std::optional<std::vector<std::byte>> result;
  const Exploration found = Explore(
      [&](Choice* order) {
        return std::make_unique<CollectiveExploredRun>(c, order, knows_state, &result);
      },
      options);
  std::cout << name << ": " << found.ToString() << std::endl;
  EXPECT_EQ(found.failure, absl::OkStatus()) << name;
  EXPECT_TRUE(found.is_complete) << name;
  return found;
}

CollectiveCase SmallAllReduce(int members) {
  CollectiveCase c;
  for (int rank = 0; rank < members; ++rank) c.layout.push_back(static_cast<uint16_t>(rank));
  c.counts = {members};
  c.num_pieces = 1;
  return c;
}

TEST(ExplorationTest, AnAllReduceBetweenTwo) {
  const Exploration merged = ExploreCollective("all_reduce between 2", SmallAllReduce(2), true);
  // No order is lost by what counts as one state.
  const Exploration all =
      ExploreCollective("all_reduce between 2, one by one", SmallAllReduce(2), false);
  EXPECT_EQ(merged.orders, all.orders);
}

// Of one element: the members pass it round once to add and once to tell. All orders.
TEST(ExplorationTest, AnAllReduceOfOneElementBetweenThree) {
  CollectiveCase c = SmallAllReduce(3);
  c.counts = {1};
  ExploreCollective("all_reduce of one element between 3", c, true);
}

// All blocks are under way at once: too many orders for all of them.
TEST(ExplorationTest, AnAllReduceBetweenThreeWithFewDelays) {
  ExploreCollective("all_reduce between 3, up to 2 delays", SmallAllReduce(3), false,
                    {.max_delays = 2});
}

}  // namespace
}  // namespace braid
