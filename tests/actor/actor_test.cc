// Graphs of actors stepped under many seeds: the values that they compute never depend on the
// order.
#include "actor/actor.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/actor/actor_cluster.h"

namespace braid {
namespace {

constexpr uint64_t kSeeds = 200;

// Builds a graph in a cluster.
using Graph = std::function<void(ActorCluster&)>;
using Values = std::vector<std::vector<int64_t>>;

Values RunGraph(Environment& environment, uint64_t seed, const Graph& build, int actors,
                const std::vector<int64_t>& runs) {
  ActorCluster cluster(&environment, seed);
  build(cluster);
  EXPECT_EQ(cluster.Start(), absl::OkStatus());
  for (const int64_t steps : runs) {
    const absl::Status status = cluster.RunAndAwait(steps);
    EXPECT_EQ(status, absl::OkStatus()) << "seed " << seed;
    if (!status.ok()) break;
  }
  cluster.Close();
  EXPECT_EQ(cluster.conflicts(), 0) << "seed " << seed;
  Values values;
  for (int actor = 0; actor < actors; ++actor) values.push_back(cluster.values(actor));
  return values;
}

// The same values under every seed, and on real threads.
Values RunEverywhere(const Graph& build, int actors, const std::vector<int64_t>& runs = {5, 2}) {
  auto real = MakeRealEnvironment();
  const Values expected = RunGraph(*real, 0, build, actors, runs);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    const Values values = RunGraph(*environment, seed, build, actors, runs);
    EXPECT_EQ(values, expected) << "seed " << seed;
    if (values != expected) break;
  }
  return expected;
}

std::vector<size_t> Counts(const Values& values) {
  std::vector<size_t> counts;
  for (const auto& one : values) counts.push_back(one.size());
  return counts;
}

TEST(ActorTest, Chain) {
  const Values values = RunEverywhere(
      [](ActorCluster& cluster) {
        const int a = cluster.AddActor("a");
        const int b = cluster.AddActor("b");
        const int c = cluster.AddActor("c");
        cluster.AddRegister(a, {b});
        cluster.AddRegister(b, {c}, {.slots = 2});
        cluster.AddRegister(c, {});
      },
      3);
  EXPECT_EQ(values[0], (std::vector<int64_t>{0, 7, 14, 21, 28, 35, 42}));
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(values[1][i], 7 * i + 1 + 31 * values[0][i]);
    EXPECT_EQ(values[2][i], 7 * i + 2 + 31 * values[1][i] % 1000003);
  }
}

TEST(ActorTest, DiamondAcrossThreadsWithEveryWayToComplete) {
  const Values values = RunEverywhere(
      [](ActorCluster& cluster) {
        const int a = cluster.AddActor("a");
        const int b =
            cluster.AddActor("b", {.thread = 1, .completion = Completion::kFromElsewhere});
        const int c =
            cluster.AddActor("c", {.thread = 2, .completion = Completion::kLaterOnThread});
        const int d = cluster.AddActor("d", {.thread = 1});
        cluster.AddRegister(a, {b, c}, {.slots = 2});
        cluster.AddRegister(b, {d}, {.slots = 3});
        cluster.AddRegister(c, {d});
      },
      4, {1, 20});
  EXPECT_EQ(Counts(values), (std::vector<size_t>{21, 21, 21, 21}));
}

TEST(ActorTest, DiamondAcrossNodes) {
  const Values values = RunEverywhere(
      [](ActorCluster& cluster) {
        const int a = cluster.AddActor("a", {.node = 0});
        const int b = cluster.AddActor("b", {.node = 1});
        const int c = cluster.AddActor("c", {.node = 2});
        const int d = cluster.AddActor("d", {.node = 0, .thread = 1});
        cluster.AddRegister(a, {b, c, d}, {.slots = 2});
        cluster.AddRegister(b, {d}, {.slots = 2});
        cluster.AddRegister(c, {d});
      },
      4);
  EXPECT_EQ(Counts(values), (std::vector<size_t>{7, 7, 7, 7}));
}

// A variable that is read by forward over `micro_batches`, gradients that add up in one slot, and
// an optimizer whose token closes the loop.
Graph Training(uint32_t micro_batches, bool is_spread) {
  return [micro_batches, is_spread](ActorCluster& cluster) {
    const auto at = [&](uint16_t node, uint32_t acts, Completion completion) {
      return ActorOptions{.node = is_spread ? node : uint16_t{0},
                          .thread = 0,
                          .acts_per_step = acts,
                          .completion = completion};
    };
    const int reader = cluster.AddActor("reader", at(0, micro_batches, Completion::kFromElsewhere));
    const int variable = cluster.AddActor("variable", at(0, 1, Completion::kInside));
    const int forward = cluster.AddActor("forward", at(1, micro_batches, Completion::kInside));
    const int optimizer = cluster.AddActor("optimizer", at(0, 1, Completion::kLaterOnThread));
    cluster.AddRegister(reader, {forward}, {.slots = 2});
    cluster.AddRegister(variable, {forward}, {.use_period = micro_batches});
    cluster.AddRegister(variable, {optimizer});
    cluster.AddRegister(forward, {optimizer}, {.fill_period = micro_batches});
    cluster.AddRegister(optimizer, {variable}, {.tokens = 1});
  };
}

TEST(ActorTest, MicroBatchesAccumulateAndTheLoopCloses) {
  for (const bool is_spread : {false, true}) {
    const Values values = RunEverywhere(Training(4, is_spread), 4, {1, 3});
    EXPECT_EQ(Counts(values), (std::vector<size_t>{16, 4, 16, 4}));
    // The optimizer's first act sees the sum of four acts of forward.
    int64_t gradient = 0;
    for (int i = 0; i < 4; ++i) gradient += values[2][i];
    EXPECT_EQ(values[3][0], 3 + 31 * values[1][0] % 1000003 + 31 * gradient % 1000003);
    EXPECT_EQ(values[1][1], 7 + 1 + 31 * values[3][0] % 1000003);
  }
}

TEST(ActorTest, AnActorMayReadItsOwnRegister) {
  const Values values = RunEverywhere(
      [](ActorCluster& cluster) {
        const int a = cluster.AddActor("state");
        const int b = cluster.AddActor("b", {.thread = 1});
        cluster.AddRegister(a, {a, b}, {.slots = 2, .tokens = 1});
        cluster.AddRegister(b, {a}, {.slots = 2});
      },
      2);
  EXPECT_EQ(Counts(values), (std::vector<size_t>{7, 7}));
  EXPECT_EQ(values[0][1], 7 + 31 * values[0][0] % 1000003 + 31 * values[1][1] % 1000003);
}

TEST(ActorTest, OneSlotGivesNoOverlapTwoGiveAll) {
  for (const uint32_t slots : {1u, 2u}) {
    int max_acts_at_once = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      auto environment = MakeSimulatedEnvironment(seed);
      ActorCluster cluster(environment.get(), seed);
      std::vector<int> stages;
      for (uint16_t i = 0; i < 4; ++i) {
        stages.push_back(
            cluster.AddActor("stage", {.thread = i, .completion = Completion::kLaterOnThread}));
      }
      for (int i = 0; i < 3; ++i) {
        cluster.AddRegister(stages[i], {stages[i + 1]}, {.slots = slots});
      }
      ASSERT_EQ(cluster.Start(), absl::OkStatus());
      ASSERT_EQ(cluster.RunAndAwait(20), absl::OkStatus());
      max_acts_at_once = std::max(max_acts_at_once, cluster.max_acts_at_once());
    }
    // With one slot a stage and its successor never act together.
    EXPECT_EQ(max_acts_at_once, slots == 1 ? 2 : 4);
  }
}

TEST(ActorTest, DeferrableActorsActWhenNoOtherCan) {
  auto environment = MakeSimulatedEnvironment(1);
  ActorCluster cluster(environment.get(), 1, [] { return nullptr; });  // as on real threads
  const int update = cluster.AddActor("update");
  const int forward = cluster.AddActor("forward");
  const int backward = cluster.AddActor("backward");
  cluster.spec(update).is_deferrable = true;
  // Two steps may be under way before the first update is waited for.
  cluster.AddRegister(forward, {backward});
  cluster.AddRegister(forward, {update}, {.slots = 2});
  ASSERT_EQ(cluster.Start(), absl::OkStatus());
  ASSERT_EQ(cluster.RunAndAwait(3), absl::OkStatus());
  EXPECT_EQ(cluster.order(), (std::vector<int>{forward, backward, forward, backward, update,
                                               forward, backward, update, update}));
}

TEST(ActorTest, AProducerIsNeverMoreThanItsSlotsAhead) {
  int max_ahead = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    const int fast = cluster.AddActor("fast");
    const int slow = cluster.AddActor("slow", {.thread = 1});
    cluster.AddRegister(fast, {slow}, {.slots = 3});
    ASSERT_EQ(cluster.Start(), absl::OkStatus());
    ASSERT_EQ(cluster.RunAndAwait(50), absl::OkStatus());
    int ahead = 0;
    for (const int actor : cluster.order()) {
      ahead += actor == fast ? 1 : -1;
      ASSERT_GE(ahead, 0);
      max_ahead = std::max(max_ahead, ahead);
    }
  }
  EXPECT_EQ(max_ahead, 3);
}

TEST(ActorTest, RunsAddUpAndEachIsReportedOnce) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    const int a = cluster.AddActor("a", {.acts_per_step = 2});
    const int b = cluster.AddActor("b", {.thread = 1});
    cluster.AddRegister(a, {b}, {.slots = 2, .fill_period = 2});
    ASSERT_EQ(cluster.Start(), absl::OkStatus());
    cluster.Run(3);
    cluster.Run(4);
    cluster.Run(1);
    ASSERT_EQ(cluster.AwaitRun(), absl::OkStatus());
    EXPECT_EQ(cluster.runs_done(0), (std::vector<int64_t>{3, 7, 8}));
    EXPECT_EQ(cluster.runs_done(1), (std::vector<int64_t>{3, 7, 8}));
    EXPECT_EQ(cluster.values(a).size(), 16u);
    EXPECT_EQ(cluster.values(b).size(), 8u);
  }
}

// A token game of its own: all orders in which a graph's acts may start on one thread.
struct TokenGame {
  struct Edge {
    int from, to, ready, free;
  };
  std::vector<Edge> edges;
  std::vector<int> left;  // acts per actor

  void AllOrders(std::vector<int>& order, std::set<std::vector<int>>& orders) {
    bool is_over = true;
    for (int actor = 0; actor < static_cast<int>(left.size()); ++actor) {
      if (left[actor] == 0) continue;
      is_over = false;
      const bool can = std::all_of(edges.begin(), edges.end(), [actor](const Edge& edge) {
        return (edge.to != actor || edge.ready > 0) && (edge.from != actor || edge.free > 0);
      });
      if (!can) continue;
      const TokenGame before = *this;
      --left[actor];
      for (Edge& edge : edges) {
        if (edge.to == actor) --edge.ready, ++edge.free;
        if (edge.from == actor) ++edge.ready, --edge.free;
      }
      order.push_back(actor);
      AllOrders(order, orders);
      order.pop_back();
      *this = before;
    }
    if (is_over) orders.insert(order);
  }
};

TEST(ActorTest, SeedsReachEveryLegalOrderOfASmallGraphAndNoOther) {
  //   0 -> 1 -> 3, 0 -> 2 -> 3, 3 -> 0 with two tokens; two slots everywhere; three steps
  TokenGame game{.edges = {{0, 1, 0, 2}, {0, 2, 0, 2}, {1, 3, 0, 2}, {2, 3, 0, 2}, {3, 0, 2, 0}},
                 .left = {3, 3, 3, 3}};
  std::set<std::vector<int>> legal;
  std::vector<int> order;
  game.AllOrders(order, legal);
  std::set<std::vector<int>> reached;
  for (uint64_t seed = 0; seed < 40000; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    for (int i = 0; i < 4; ++i) cluster.AddActor("x");
    cluster.AddRegister(0, {1}, {.slots = 2});
    cluster.AddRegister(0, {2}, {.slots = 2});
    cluster.AddRegister(1, {3}, {.slots = 2});
    cluster.AddRegister(2, {3}, {.slots = 2});
    cluster.AddRegister(3, {0}, {.slots = 2, .tokens = 2});
    ASSERT_EQ(cluster.Start(), absl::OkStatus());
    ASSERT_EQ(cluster.RunAndAwait(3), absl::OkStatus()) << "seed " << seed;
    ASSERT_TRUE(legal.contains(cluster.order())) << "seed " << seed;
    reached.insert(cluster.order());
  }
  EXPECT_GT(legal.size(), 20u);
  EXPECT_EQ(reached.size(), legal.size());
}

// Random graphs of forward edges, with an edge back that carries tokens, over nodes and threads.
TEST(ActorTest, RandomGraphsComputeTheSameUnderEverySeed) {
  for (uint64_t shape = 0; shape < 20; ++shape) {
    const Graph build = [shape](ActorCluster& cluster) {
      SeededChoice choice(shape);
      constexpr int kActors = 12;
      for (int i = 0; i < kActors; ++i) {
        cluster.AddActor("x", {.node = static_cast<uint16_t>(choice.Below(3)),
                               .thread = static_cast<uint16_t>(choice.Below(2)),
                               .completion = static_cast<Completion>(choice.Below(3))});
      }
      for (int i = 0; i + 1 < kActors; ++i) {
        std::vector<int> consumers;
        for (int j = i + 1; j < kActors; ++j) {
          if (choice.Below(3) == 0) consumers.push_back(j);
        }
        cluster.AddRegister(i, consumers, {.slots = static_cast<uint32_t>(1 + choice.Below(3))});
      }
      cluster.AddRegister(kActors - 1, {0}, {.slots = 2, .tokens = 2});
    };
    auto reference_environment = MakeRealEnvironment();
    const Values expected = RunGraph(*reference_environment, 0, build, 12, {6});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto environment = MakeSimulatedEnvironment(seed);
      ASSERT_EQ(RunGraph(*environment, seed, build, 12, {6}), expected)
          << "graph " << shape << ", seed " << seed;
    }
  }
}

// A server acts for the worker that is there, and each worker goes on when it was its turn.
TEST(ActorTest, AServerTakesWhatComesFirst) {
  constexpr int kWorkers = 3;
  std::set<std::vector<int32_t>> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    const int server = cluster.AddActor("server", {.acts_per_step = kWorkers, .lanes = kWorkers});
    const int rate = cluster.AddActor("rate", {.node = 1});
    cluster.AddRegister(rate, {server}, {.slots = 2, .use_period = kWorkers});
    for (int32_t lane = 0; lane < kWorkers; ++lane) {
      const int worker = cluster.AddActor("worker", {.node = static_cast<uint16_t>(lane % 2),
                                                     .thread = static_cast<uint16_t>(1 + lane),
                                                     .completion = Completion::kLaterOnThread});
      cluster.AddRegister(worker, {server}, {.slots = 2, .use_lane = lane});
      cluster.AddRegister(server, {worker}, {.slots = 2, .tokens = 1, .fill_lane = lane});
    }
    ASSERT_EQ(cluster.Start(), absl::OkStatus());
    for (const int64_t steps : {4, 3}) {
      ASSERT_EQ(cluster.RunAndAwait(steps), absl::OkStatus()) << "seed " << seed;
    }
    cluster.Close();
    EXPECT_EQ(cluster.conflicts(), 0) << "seed " << seed;
    const std::vector<int32_t>& order = cluster.lanes(server);
    for (int32_t lane = 0; lane < kWorkers; ++lane) {
      EXPECT_EQ(std::count(order.begin(), order.end(), lane), 7) << "seed " << seed;
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), kSeeds / 2);
}

TEST(ActorTest, TheSameSeedGivesTheSameOrderOfActs) {
  const auto order = [](uint64_t seed) {
    auto environment = MakeSimulatedEnvironment(seed);
    ActorCluster cluster(environment.get(), seed);
    Training(3, /*is_spread=*/true)(cluster);
    EXPECT_EQ(cluster.Start(), absl::OkStatus());
    EXPECT_EQ(cluster.RunAndAwait(5), absl::OkStatus());
    return cluster.order();
  };
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(order(seed), order(seed));
    orders.insert(order(seed));
  }
  EXPECT_GT(orders.size(), 10u);
}

TEST(ActorTest, ManyActsAcrossRealThreads) {
  auto environment = MakeRealEnvironment();
  ActorCluster cluster(environment.get(), 1);
  std::vector<int> stages;
  for (uint16_t i = 0; i < 4; ++i) {
    stages.push_back(cluster.AddActor(
        "stage", {.node = static_cast<uint16_t>(i / 3),
                  .thread = i,
                  .completion = i == 2 ? Completion::kFromElsewhere : Completion::kInside}));
  }
  for (int i = 0; i < 3; ++i) {
    cluster.AddRegister(stages[i], {stages[i + 1]}, {.slots = static_cast<uint32_t>(1 + i)});
  }
  cluster.AddRegister(stages[3], {stages[0]}, {.slots = 4, .tokens = 3});
  ASSERT_EQ(cluster.Start(), absl::OkStatus());
  ASSERT_EQ(cluster.RunAndAwait(3000), absl::OkStatus());
  cluster.Close();
  EXPECT_EQ(cluster.conflicts(), 0);
  EXPECT_EQ(cluster.values(stages[3]).size(), 3000u);
  EXPECT_EQ(cluster.remote_messages(), 4 * 3000);  // kReady and kAck over two edges
}

}  // namespace
}  // namespace braid
