// Every (transport, algorithm) through one suite: all kinds, member counts, layouts, sizes and
// types in the real environment and in simulated ones, compared bit for bit.
#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/host_memory.h"
#include "tests/comm/collective_case.h"
#include "tests/comm/comm_cluster.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

std::vector<CollectiveKind> KindsOf(CollectiveAlgorithm algorithm) {
  if (algorithm == CollectiveAlgorithm::kExchange) return {CollectiveKind::kAllReduce};
  if (algorithm == CollectiveAlgorithm::kPairwise) {
    return {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter};
  }
  if (algorithm == CollectiveAlgorithm::kDoubling ||
      algorithm == CollectiveAlgorithm::kHierarchical) {
    return {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
            CollectiveKind::kBroadcast};
  }
  return {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast};
}

struct Layout {
  std::string name;
  std::vector<uint16_t> nodes;       // of each member
  std::vector<uint32_t> hosts = {};  // of each member; empty: all on one
};

// Hosts as many members each: a process a host; a process a member, and hosts one after another, or
// members of several hosts in turn; both; a process with members on either side of another one's.
std::vector<Layout> HostLayouts(int p) {
  switch (p) {
    case 4:
      return {{"process_a_host", {0, 0, 1, 1}, {0, 0, 1, 1}},
              {"hosts_in_a_row", {0, 1, 2, 3}, {0, 0, 1, 1}},
              {"hosts_in_turn", {0, 1, 2, 3}, {0, 1, 0, 1}},
              {"mixed", {0, 0, 1, 2}, {0, 0, 1, 1}},
              {"around", {0, 1, 1, 0}, {0, 1, 1, 0}}};
    case 6:
      return {{"three_hosts", {0, 1, 2, 3, 4, 5}, {0, 1, 2, 2, 1, 0}},
              {"two_hosts", {0, 1, 0, 1, 2, 3}, {0, 1, 0, 1, 0, 1}}};
    default:
      return {};
  }
}

// One node; one member a node; unequal nodes, the members of one not next to each other in the
// last.
std::vector<Layout> Layouts(CollectiveAlgorithm algorithm, int p) {
  if (algorithm == CollectiveAlgorithm::kHierarchical) return HostLayouts(p);
  if (algorithm == CollectiveAlgorithm::kExchange) {
    return p == 2 ? std::vector<Layout>{{"one_each", {0, 1}}} : std::vector<Layout>{};
  }
  std::vector<Layout> layouts = {{"one_node", std::vector<uint16_t>(p, 0)}};
  const bool is_between_nodes = algorithm == CollectiveAlgorithm::kRing ||
                                algorithm == CollectiveAlgorithm::kDoubling ||
                                algorithm == CollectiveAlgorithm::kPairwise;
  if (!is_between_nodes || p == 1) return layouts;
  Layout one_each{"one_each", {}}, unequal{"unequal", {}}, mixed{"mixed", {}};
  for (int r = 0; r < p; ++r) {
    one_each.nodes.push_back(r);
    unequal.nodes.push_back(r < (p + 1) / 2 ? 0 : 1);
    mixed.nodes.push_back(r % 2);
  }
  layouts.push_back(one_each);
  if (p > 2) {
    layouts.push_back(unequal);
    layouts.push_back(mixed);
  }
  return layouts;
}

// Of members.
std::vector<int> NumbersOf(CollectiveAlgorithm algorithm) {
  if (algorithm == CollectiveAlgorithm::kHierarchical) return {4, 6};
  return {1, 2, 3, 4, 5};
}

int NumNodes(const std::vector<uint16_t>& layout) {
  return 1 + *std::max_element(layout.begin(), layout.end());
}

// Empty, one element, less than a chunk, uneven with empty blocks, many chunks, both.
std::vector<CollectiveCase> Cases(CollectiveAlgorithm algorithm, const Layout& layout) {
  const int p = layout.nodes.size();
  std::vector<CollectiveCase> cases;
  for (const CollectiveKind kind : KindsOf(algorithm)) {
    for (const ElementType type :
         {ElementType::kFloat, ElementType::kDouble, ElementType::kInt32}) {
      for (const auto& [n, uneven] : std::vector<std::pair<int64_t, bool>>{
               {0, false}, {1, false}, {7, false}, {3, true}, {300, false}, {150, true}}) {
        for (const bool in_place : {false, true}) {
          CollectiveCase c;
          c.kind = kind;
          c.algorithm = algorithm;
          c.layout = layout.nodes;
          c.hosts = layout.hosts;
          c.counts = MakeCounts(kind, p, n, uneven);
          c.type = type;
          c.in_place = in_place;
          c.root = static_cast<int>(n) % p;
          if (cases.size() / 2 % 2 == 0) c.place_from = 0;
          if (cases.size() / 2 % 3 == 0) c.lend_from = 0;
          cases.push_back(c);
        }
      }
    }
  }
  // Several chunks of every block.
  for (const CollectiveKind kind : KindsOf(algorithm)) {
    CollectiveCase c;
    c.kind = kind;
    c.algorithm = algorithm;
    c.layout = layout.nodes;
    c.hosts = layout.hosts;
    c.counts = MakeCounts(kind, p, 6000, false);
    c.in_place = true;
    c.chunk_bytes = 4096;
    c.root = p - 1;
    cases.push_back(c);
    c.lend_from = 0;
    cases.push_back(c);
    c.place_from = 0;
    cases.push_back(c);
  }
  return cases;
}

std::vector<std::unique_ptr<Reactor>> StartReactors(Environment& environment, int n) {
  std::vector<std::unique_ptr<Reactor>> reactors;
  for (int i = 0; i < n; ++i) {
    reactors.push_back(environment.StartReactor("member" + std::to_string(i)));
  }
  return reactors;
}

std::vector<Reactor*> Borrow(const std::vector<std::unique_ptr<Reactor>>& reactors) {
  std::vector<Reactor*> borrowed;
  for (const auto& reactor : reactors) borrowed.push_back(reactor.get());
  return borrowed;
}

struct Param {
  TransportCase transport;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
};

class CollectiveTest : public ::testing::TestWithParam<Param> {
 protected:
  // Runs the cases `at_once` at a time, with their pieces interleaved as they come.
  void RunAll(Environment& environment, const std::vector<CollectiveCase>& cases, size_t at_once) {
    const std::vector<uint16_t>& layout = cases[0].layout;
    const auto reactors = StartReactors(environment, layout.size());
    CommCluster cluster(environment, GetParam().transport, NumNodes(layout));
    uint32_t id = 0;
    for (size_t first = 0; first < cases.size(); first += at_once) {
      std::vector<std::unique_ptr<CollectiveRun>> runs;
      for (size_t i = first; i < std::min(cases.size(), first + at_once); ++i) {
        runs.push_back(std::make_unique<CollectiveRun>(cluster, cases[i], ++id, Borrow(reactors)));
      }
      for (const absl::Status& status : cluster.Connect()) ASSERT_TRUE(status.ok()) << status;
      for (auto& run : runs) run->Start();
      for (auto& run : runs) ASSERT_TRUE(run->Wait().ok()) << run->Wait();
      for (auto& run : runs) {
        ASSERT_TRUE(run->AllAnswered());
        run->Check();
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_TRUE(cluster.frame_error().ok()) << cluster.frame_error();
  }
};

TEST_P(CollectiveTest, GivesTheReferenceInTheRealEnvironment) {
  const auto environment = MakeRealEnvironment();
  for (const int p : NumbersOf(GetParam().algorithm)) {
    for (const Layout& layout : Layouts(GetParam().algorithm, p)) {
      SCOPED_TRACE(layout.name + " p=" + std::to_string(p));
      const std::vector<CollectiveCase> all = Cases(GetParam().algorithm, layout);
      const size_t sampling = GetParam().transport.sampling;
      std::vector<CollectiveCase> some;
      for (size_t i = p % sampling; i < all.size(); i += sampling) some.push_back(all[i]);
      RunAll(*environment, some, 20);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CollectiveTest, GivesTheReferenceForEverySeed) {
  if (!GetParam().transport.simulate) GTEST_SKIP() << "needs descriptors of the system's";
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const int p : NumbersOf(GetParam().algorithm)) {
      for (const Layout& layout : Layouts(GetParam().algorithm, p)) {
        SCOPED_TRACE(layout.name + " p=" + std::to_string(p) + " seed=" + std::to_string(seed));
        const auto environment = GetParam().transport.simulate(seed);
        // A few cases a seed, others for the next.
        std::vector<CollectiveCase> some;
        const std::vector<CollectiveCase> all = Cases(GetParam().algorithm, layout);
        for (size_t i = (seed * 7 + p) % 13; i < all.size(); i += 13) some.push_back(all[i]);
        RunAll(*environment, some, 7);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// How many blocks of a member cross from node to node: between the ring's neighbours, or between
// all pairs, that live on different nodes.
uint64_t BlocksBetweenNodes(const Layout& layout, CollectiveKind kind) {
  const int p = static_cast<int>(layout.nodes.size());
  uint64_t hops = 0, pairs = 0, chain = 0;
  for (int r = 0; r < p; ++r) {
    const bool crosses = layout.nodes[r] != layout.nodes[(r + 1) % p];
    hops += crosses;
    chain += crosses && r < p - 1;
    for (int q = 0; q < p; ++q) pairs += layout.nodes[r] != layout.nodes[q];
  }
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return hops * 2 * (p - 1);
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return hops * (p - 1);
    case CollectiveKind::kAllToAll:
      return pairs;
    case CollectiveKind::kBroadcast:
      return chain * p;
  }
  return 0;
}

// The same where a ring between hosts is for each of their members, and the members of a host
// exchange; the root is member 0, and the chain goes from host to host.
uint64_t BlocksByHost(const Layout& layout, CollectiveKind kind) {
  const int p = static_cast<int>(layout.nodes.size());
  const int hosts = static_cast<int>(1 + std::ranges::max(layout.hosts));
  std::vector<int> chain;
  for (const uint32_t first : layout.hosts) {
    for (int r = 0; r < p; ++r) {
      if (layout.hosts[r] == first && std::ranges::find(chain, r) == chain.end()) {
        chain.push_back(r);
      }
    }
  }
  uint64_t pairs = 0, links = 0;
  for (int r = 0; r < p; ++r) {
    if (r > 0) links += layout.nodes[chain[r - 1]] != layout.nodes[chain[r]];
    for (int q = 0; q < p; ++q) {
      pairs += layout.hosts[r] == layout.hosts[q] && layout.nodes[r] != layout.nodes[q];
    }
  }
  const uint64_t once = pairs * hosts + p * (hosts - 1);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * once;
    case CollectiveKind::kBroadcast:
      return links * p;
    default:
      return once;
  }
}

// The same in doubling steps: members gather, of what is summed the whole of each; or all get what
// member 0 has, which is as much as a block of each.
uint64_t BlocksInDoublingSteps(const Layout& layout, CollectiveKind kind) {
  const int p = static_cast<int>(layout.nodes.size());
  uint64_t gathered = 0, passed_on = 0;
  for (int r = 0; r < p; ++r) {
    for (int distance = 1; distance < p; distance *= 2) {
      const bool crosses = layout.nodes[r] != layout.nodes[(r + p - distance) % p];
      gathered += crosses ? std::min(distance, p - distance) : 0;
      if (r < distance && r + distance < p) {
        passed_on += layout.nodes[r] != layout.nodes[r + distance];
      }
    }
  }
  if (kind == CollectiveKind::kBroadcast) return passed_on * p;
  return kind == CollectiveKind::kAllGather ? gathered : gathered * p;
}

// The same where each sends to each.
uint64_t BlocksBetweenPairs(const Layout& layout, CollectiveKind kind) {
  uint64_t pairs = 0;
  for (const uint16_t from : layout.nodes) {
    for (const uint16_t to : layout.nodes) pairs += from != to;
  }
  return kind == CollectiveKind::kAllReduce ? 2 * pairs : pairs;
}

TEST_P(CollectiveTest, MovesNoByteMoreThanNeeded) {
  const auto environment = MakeRealEnvironment();
  for (const int p : NumbersOf(GetParam().algorithm)) {
    for (const Layout& layout : Layouts(GetParam().algorithm, p)) {
      const auto reactors = StartReactors(*environment, p);
      CommCluster cluster(*environment, GetParam().transport, NumNodes(layout.nodes));
      uint32_t id = 0;
      for (const CollectiveKind kind : KindsOf(GetParam().algorithm)) {
        CollectiveCase c;
        c.kind = kind;
        c.algorithm = GetParam().algorithm;
        c.layout = layout.nodes;
        c.hosts = layout.hosts;
        c.counts = MakeCounts(kind, p, 100, false);
        c.num_pieces = 1;
        if (p % 2 == 0) c.place_from = 0;
        CollectiveRun run(cluster, c, ++id, Borrow(reactors));
        for (const absl::Status& status : cluster.Connect()) ASSERT_TRUE(status.ok()) << status;
        const uint64_t before = cluster.nodes().TotalBytesSent();
        run.Start();
        ASSERT_TRUE(run.Wait().ok());
        const uint64_t moved = cluster.nodes().TotalBytesSent() - before;
        const uint64_t block = 400;
        const uint64_t blocks = GetParam().algorithm == CollectiveAlgorithm::kDoubling
                                    ? BlocksInDoublingSteps(layout, kind)
                                : GetParam().algorithm == CollectiveAlgorithm::kPairwise
                                    ? BlocksBetweenPairs(layout, kind)
                                : layout.hosts.empty() ? BlocksBetweenNodes(layout, kind)
                                                       : BlocksByHost(layout, kind);
        EXPECT_EQ(moved, block * blocks) << c.Describe();
      }
    }
  }
}

class RingTest : public ::testing::TestWithParam<TransportCase> {};

// What a receiver can read where it lies does not cross the link; what is placed does.
TEST_P(RingTest, WhatIsLentIsNotSent) {
  const auto environment = MakeRealEnvironment();
  const auto reactors = StartReactors(*environment, 2);
  CommCluster cluster(*environment, GetParam(), 2);
  uint32_t id = 0;
  for (const CollectiveKind kind : KindsOf(CollectiveAlgorithm::kRing)) {
    for (const bool is_placed : {false, true}) {
      CollectiveCase c;
      c.kind = kind;
      c.layout = {0, 1};
      c.counts = MakeCounts(kind, 2, 100, false);
      c.num_pieces = 1;
      c.lend_from = 0;
      if (is_placed) c.place_from = 0;
      CollectiveRun run(cluster, c, ++id, Borrow(reactors));
      for (const absl::Status& status : cluster.Connect()) ASSERT_TRUE(status.ok()) << status;
      const uint64_t before = cluster.nodes().TotalBytesSent();
      run.Start();
      ASSERT_TRUE(run.Wait().ok());
      run.Check();
      const uint64_t moved = cluster.nodes().TotalBytesSent() - before;
      const uint64_t only_moved = kind == CollectiveKind::kReduceScatter ? 0 : 800;
      const bool reduces =
          kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
      const uint64_t all = only_moved + (reduces ? 800 : 0);
      const uint64_t not_lent = is_placed ? only_moved : 0;
      EXPECT_EQ(moved, GetParam().lends ? not_lent : all) << c.Describe();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, RingTest, ::testing::ValuesIn(TransportCases()),
                         [](const auto& info) { return info.param.name; });

// A stranger's done, a second done or none would show in AllAnswered.
TEST_P(CollectiveTest, AbortAnswersEveryStartOnce) {
  for (uint64_t seed = 0; seed <= 40; ++seed) {
    if (seed > 0 && !GetParam().transport.simulate) break;
    const auto environment =
        seed == 0 ? MakeRealEnvironment() : GetParam().transport.simulate(seed);
    const int p = GetParam().algorithm == CollectiveAlgorithm::kExchange       ? 2
                  : GetParam().algorithm == CollectiveAlgorithm::kHierarchical ? 4
                                                                               : 3;
    const std::vector<Layout> layouts = Layouts(GetParam().algorithm, p);
    const Layout& layout = layouts[seed % layouts.size()];
    const auto reactors = StartReactors(*environment, p);
    CommCluster cluster(*environment, GetParam().transport, NumNodes(layout.nodes));
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const CollectiveKind kind : KindsOf(GetParam().algorithm)) {
      CollectiveCase c;
      c.kind = kind;
      c.algorithm = GetParam().algorithm;
      c.layout = layout.nodes;
      c.hosts = layout.hosts;
      c.counts = MakeCounts(kind, p, seed % 2 == 0 ? 3000 : 9, false);
      c.is_endless = true;
      c.in_place = true;
      if (seed % 3 == 0) c.place_from = 0;
      if (seed % 4 < 2) c.lend_from = 0;
      runs.push_back(
          std::make_unique<CollectiveRun>(cluster, c, runs.size() + 1, Borrow(reactors)));
    }
    for (const absl::Status& status : cluster.Connect()) ASSERT_TRUE(status.ok()) << status;
    for (auto& run : runs) run->Start();
    const Nanoseconds delay = static_cast<Nanoseconds>(seed) * 20 * kMicrosecond;
    RunOn(*environment, *reactors[0], [&] {
      reactors[0]->RunAfter(delay, [&] {
        for (int node = 0; node < NumNodes(layout.nodes); ++node) {
          cluster.hub(node).Abort(absl::AbortedError("the test said so"));
        }
      });
    });
    for (auto& run : runs) {
      EXPECT_EQ(run->Wait(), absl::AbortedError("the test said so")) << "seed " << seed;
    }
    for (auto& run : runs) EXPECT_TRUE(run->AllAnswered());
    EXPECT_EQ(cluster.hub(0)
                  .Create(MakeSpec({.layout = {0}, .counts = {1}}, 99, 0), *reactors[0],
                          AllocateHostMemory)
                  .status(),
              absl::AbortedError("the test said so"));
  }
}

// What the devices do themselves the host does not: its members meet, and touch nothing.
TEST(DeviceCollectives, MembersMeetAndTouchNothing) {
  const std::unique_ptr<Environment> environment = MakeSimulatedEnvironment(1);
  CommCluster cluster(*environment, TransportCases()[0], 1);
  std::vector<std::unique_ptr<Reactor>> reactors;
  std::vector<std::unique_ptr<Collective>> ends;
  std::vector<std::unique_ptr<Outcome>> done;
  CollectiveCase c{.layout = {0, 0}, .counts = {100}};
  c.algorithm = CollectiveAlgorithm::kDevice;
  for (int rank : {0, 1}) {
    const CollectiveSpec spec = MakeSpec(c, 1, rank);
    EXPECT_EQ(CollectiveMemoryBytes(spec), 0);
    reactors.push_back(environment->StartReactor("member"));
    auto end = cluster.hub(0).Create(spec, *reactors[rank], AllocateHostMemory);
    ASSERT_TRUE(end.ok()) << end.status();
    ends.push_back(*std::move(end));
    done.push_back(std::make_unique<Outcome>(*environment));
  }
  ASSERT_TRUE(cluster.Connect()[0].ok());
  // Nobody may look at these.
  std::byte* const nowhere = nullptr;
  reactors[0]->Post([&] { ends[0]->Start(0, nowhere, nowhere, done[0]->callback()); });
  RunOn(*environment, *reactors[0], [] {});
  EXPECT_EQ(done[0]->times(), 0);
  reactors[1]->Post([&] { ends[1]->Start(0, nowhere, nowhere, done[1]->callback()); });
  for (int rank : {0, 1}) {
    EXPECT_EQ(done[rank]->Wait(), absl::OkStatus());
    RunOn(*environment, *reactors[rank], [&] { ends[rank].reset(); });
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, CollectiveTest, ::testing::ValuesIn([] {
                           std::vector<Param> params;
                           for (const TransportCase& transport : TransportCases()) {
                             for (const auto algorithm :
                                  {CollectiveAlgorithm::kDirect, CollectiveAlgorithm::kDirectByOne,
                                   CollectiveAlgorithm::kRing, CollectiveAlgorithm::kExchange,
                                   CollectiveAlgorithm::kHierarchical,
                                   CollectiveAlgorithm::kDoubling,
                                   CollectiveAlgorithm::kPairwise}) {
                               params.push_back({transport, algorithm});
                             }
                           }
                           return params;
                         }()),
                         [](const auto& info) {
                           return info.param.transport.name + "_" +
                                  std::string(CollectiveAlgorithmName(info.param.algorithm));
                         });

}  // namespace
}  // namespace braid
