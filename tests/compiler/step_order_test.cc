// What the abstract step and the order of edges say is what real actors do, whatever their order.
#include "compiler/physical/step_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/physical/assign_slots.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/physical/simulate_step.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "gtest/gtest.h"
#include "runtime/base/seeded_choice.h"
#include "tests/actor/actor_cluster.h"
#include "tests/compiler/group_graph.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

// Groups that act once or m times; registers of one or m pieces a step, with random slots, tokens,
// readers.
PhysicalGraph RandomGraph(uint64_t seed, bool is_forward_only) {
  SeededChoice choice(seed);
  GroupGraph g;
  const int m = 2 + static_cast<int>(choice.Below(3));
  const int groups = 3 + static_cast<int>(choice.Below(8));
  for (int i = 0; i < groups; ++i) {
    g.Group(absl::StrFormat("g%d", i), {.acts_per_step = choice.Below(2) == 0 ? 1 : m});
  }
  const int registers = groups + static_cast<int>(choice.Below(groups));
  for (int i = 0; i < registers; ++i) {
    const auto producer = static_cast<GroupId>(choice.Below(groups));
    const int acts = g.graph.group(producer).acts_per_step;
    std::set<GroupId> readers;
    for (uint64_t n = choice.Below(3); n > 0; --n) {
      readers.insert(static_cast<GroupId>(choice.Below(groups)));
    }
    bool act_alike = acts > 1;
    bool goes_back = false;
    std::vector<GroupId> fellows;
    for (GroupId reader : readers) {
      if (is_forward_only && reader <= producer) continue;
      if (!fellows.empty() &&
          g.graph.group(reader).acts_per_step != g.graph.group(fellows[0]).acts_per_step) {
        continue;
      }
      fellows.push_back(reader);
      if (g.graph.group(reader).acts_per_step != acts) act_alike = false;
      if (reader <= producer) goes_back = true;
    }
    // As many pieces a step as both ends can have.
    const int pieces = act_alike && choice.Below(4) != 0 ? acts : 1;
    const int use_period = fellows.empty() ? 1 : g.graph.group(fellows[0]).acts_per_step / pieces;
    const int slots = 1 + static_cast<int>(choice.Below(pieces + 1));
    const bool has_tokens = goes_back ? choice.Below(6) != 0 : choice.Below(8) == 0;
    g.Edge(absl::StrFormat("r%d", i), producer, fellows,
           {.slots = slots,
            .period = acts / pieces,
            .use_period = use_period,
            .tokens = has_tokens ? 1 + static_cast<int>(choice.Below(slots)) : 0});
  }
  g.graph.LayOutParts();
  return g.graph;
}

// Some registers are read through an all_reduce of theirs.
PhysicalGraph WithAllReduces(PhysicalGraph graph, uint64_t seed) {
  SeededChoice choice(seed);
  const auto registers = static_cast<GroupRegisterId>(graph.registers().size());
  for (GroupRegisterId id = 0; id < registers; ++id) {
    const Register in = graph.reg(id);
    if (in.initial_tokens > 0 || choice.Below(3) != 0) continue;
    Register out = in;
    out.name += ".all_reduce";
    out.producer = static_cast<GroupId>(graph.groups().size());
    out.period = 1;
    const GroupRegisterId result = graph.AddRegister(std::move(out)).id;
    const auto consumers = graph.Consumers();
    for (const auto& [reader, index] : consumers[id]) {
      graph.group(reader).inputs[index].reg = result;
    }
    TaskGroup group;
    group.name = graph.reg(result).name;
    group.stream = StreamKind::kTransfer;
    group.placement = in.placement;
    group.acts_per_step = graph.group(in.producer).acts_per_step / in.period;
    group.inputs.push_back({.reg = id});
    group.outputs.push_back(result);
    const TensorLayout& layout = in.parts[0].layout;
    group.work = Collective{.movement = {.source = layout, .destination = layout}};
    graph.AddGroup(std::move(group));
  }
  graph.LayOutParts();
  return graph;
}

// Runs the graph with one actor a group, all acts ending where they start. The groups in the order
// of their acts, and whether every step came to its end.
std::pair<std::vector<int>, bool> RunActors(const PhysicalGraph& graph, uint64_t seed, int steps) {
  auto environment = MakeSimulatedEnvironment(seed);
  ActorCluster cluster(environment.get(), seed);
  for (const TaskGroup& group : graph.groups()) {
    cluster.AddActor(group.name, {.thread = static_cast<uint16_t>(group.id % 3),
                                  .acts_per_step = static_cast<uint32_t>(group.acts_per_step)});
  }
  std::map<GroupRegisterId, std::vector<int>> consumers;
  std::map<GroupRegisterId, int> use_period;
  for (const TaskGroup& group : graph.groups()) {
    for (const GroupInput& input : group.inputs) {
      consumers[input.reg].push_back(group.id);
      use_period[input.reg] = input.period;  // alike for all readers here
    }
  }
  for (const Register& reg : graph.registers()) {
    cluster.AddRegister(reg.producer, consumers[reg.id],
                        {.slots = static_cast<uint32_t>(reg.slots),
                         .fill_period = static_cast<uint32_t>(reg.period),
                         .use_period = static_cast<uint32_t>(std::max(1, use_period[reg.id])),
                         .tokens = static_cast<uint32_t>(reg.initial_tokens)});
  }
  EXPECT_EQ(cluster.Start(), absl::OkStatus());
  const bool done = cluster.RunAndAwait(steps).ok();
  cluster.Close();
  EXPECT_EQ(cluster.conflicts(), 0) << "seed " << seed;
  return {cluster.order(), done};
}

TEST(StepOrderTest, TheAbstractStepSaysWhatActorsDo) {
  int runs = 0, stops = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const PhysicalGraph graph = RandomGraph(seed, false);
    ASSERT_EQ(VerifyInvariants(graph), absl::OkStatus()) << seed;
    StepSimulation simulation(graph);
    const bool expected = simulation.Run();
    (expected ? runs : stops) += 1;
    ASSERT_EQ(RunActors(graph, seed, 3).second, expected) << seed << "\n" << graph.ToString();
    if (expected) continue;
    // The cycle is one: each waits for the next.
    const auto cycle = simulation.FindCycle();
    for (size_t i = 0; i < cycle.size(); ++i) {
      ASSERT_EQ(cycle[i].on, cycle[(i + 1) % cycle.size()].group);
    }
    // With the slots that assign_slots finds it runs, or no slots help.
    const auto assigned = AssignSlots(graph);
    if (assigned.ok()) {
      ASSERT_TRUE(RunActors(*assigned, seed, 3).second) << seed;
    }
  }
  EXPECT_GT(runs, 200);
  EXPECT_GT(stops, 200);
}

// What StepOrder claims holds under every order of the actors.
TEST(StepOrderTest, TheOrderOfEdgesIsKept) {
  std::map<StepOrder::When, int> claims, denials;
  int far_claims = 0;  // of acts that are several acts later
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto assigned = AssignSlots(RandomGraph(seed, seed % 2 == 0));
    if (!assigned.ok()) continue;
    const PhysicalGraph& graph = *assigned;
    const auto order = StepOrder::Make(graph);
    ASSERT_TRUE(order.ok()) << order.status();
    std::vector<StepOrder::Constraint> constraints;
    using When = StepOrder::When;
    for (const TaskGroup& a : graph.groups()) {
      for (const TaskGroup& b : graph.groups()) {
        for (When when : {When::kStep, When::kNextStep, When::kAct, When::kNextAct}) {
          constraints.push_back({a.id, b.id, when});
        }
        for (int acts = 2; acts <= a.acts_per_step; ++acts) {
          constraints.push_back({a.id, b.id, When::kNextAct, acts});
        }
      }
    }
    const std::vector<bool> holds = order->Holds(constraints);
    constexpr int kSteps = 3;
    for (uint64_t run = 0; run < 6; ++run) {
      const auto [acts, done] = RunActors(graph, seed * 100 + run, kSteps);
      ASSERT_TRUE(done) << seed;
      // Where each group's act of each number stands.
      std::vector<std::vector<int>> at(graph.groups().size());
      for (size_t i = 0; i < acts.size(); ++i) at[acts[i]].push_back(static_cast<int>(i));
      for (size_t i = 0; i < constraints.size(); ++i) {
        const GroupId reader = constraints[i].reader, writer = constraints[i].writer;
        (holds[i] ? claims : denials)[constraints[i].when] += 1;
        if (!holds[i]) continue;
        const int reads = graph.group(reader).acts_per_step,
                  writes = graph.group(writer).acts_per_step;
        const auto expect = [&](int read, int write) {
          ASSERT_LT(at[reader][read], at[writer][write])
              << "seed " << seed << " g" << reader << " act " << read << " before g" << writer
              << " act " << write << "\n"
              << graph.ToString();
        };
        if (constraints[i].is_of_acts()) {
          ASSERT_EQ(reads, writes);
          const int later = constraints[i].is_next() ? constraints[i].acts : 0;
          if (later > 1) ++far_claims;
          for (int act = 0; act + later < kSteps * reads; ++act) expect(act, act + later);
          continue;
        }
        const int later = constraints[i].is_next() ? 1 : 0;
        for (int step = 0; step + later < kSteps; ++step) {
          expect((step + 1) * reads - 1, (step + later) * writes);
        }
      }
    }
  }
  using When = StepOrder::When;
  EXPECT_GT(claims[When::kStep] + claims[When::kNextStep], 10000);
  for (When when : {When::kStep, When::kNextStep, When::kAct, When::kNextAct}) {
    EXPECT_GT(claims[when], 2000) << static_cast<int>(when);
    EXPECT_GT(denials[when], 10000) << static_cast<int>(when);
  }
  EXPECT_GT(far_claims, 2000);
}

// Forwards and backwards of a pipeline's stage: what the one keeps for the other has several slots,
// what goes from layer to layer one.
PhysicalGraph RandomStage(uint64_t seed) {
  SeededChoice choice(seed);
  GroupGraph g;
  const int m = 2 + static_cast<int>(choice.Below(4));
  const int layers = 2 + static_cast<int>(choice.Below(4));
  const int kept = 2 + static_cast<int>(choice.Below(m - 1));
  std::vector<GroupId> groups;
  for (int i = 0; i < 2 * layers; ++i) {
    const bool turns = i == layers && choice.Below(2) == 0;
    groups.push_back(g.Group(
        absl::StrFormat("g%d", i),
        {.acts_per_step = m, .stream = turns ? StreamKind::kTransfer : StreamKind::kCompute}));
  }
  for (int i = 0; i + 1 < 2 * layers; ++i) {
    const int slots = 1 + static_cast<int>(choice.Below(2));
    g.Edge(absl::StrFormat("r%d", i), groups[i], {groups[i + 1]}, {.slots = slots});
  }
  for (int i = 0; i < layers; ++i) {
    std::vector<GroupId> readers = {groups[2 * layers - 1 - i]};
    if (choice.Below(3) == 0 && i + 1 < layers) readers.push_back(groups[i + 1]);
    g.Edge(absl::StrFormat("kept%d", i), groups[i], readers, {.slots = kept});
    if (choice.Below(3) == 0) g.Edge(absl::StrFormat("lost%d", i), groups[i], {});
  }
  const GroupId update = g.Group("update"), after = g.Group("after");
  g.Edge("gradient", groups[2 * layers - 1], {update}, {.period = m});
  g.Edge("updated", update, {after});
  g.graph.LayOutParts();
  return g.graph;
}

struct Shared {
  int64_t bytes = 0;
  int in_place = 0;   // acts
  int in_frames = 0;  // registers
};

// Planned memory, replayed: whatever the order of the actors, a reader finds what was written for
// it, and no act writes over what it reads.
void ExpectReadersFindTheirs(const PhysicalGraph& assigned, uint64_t seed, Shared& shared) {
  const auto planned = PlanMemory(assigned, JobRegistry());
  ASSERT_TRUE(planned.ok()) << planned.status();
  const PhysicalGraph& graph = *planned;
  ASSERT_EQ(Verify(graph, JobRegistry()), absl::OkStatus()) << seed << "\n" << graph.ToString();
  int64_t bytes = 0, end = 0;
  for (const Register& reg : graph.registers()) {
    if (reg.is_control()) continue;
    bytes += reg.slots * reg.slot_bytes;
    end = std::max(end, reg.offset + reg.span_bytes());
    shared.in_frames += reg.stride > reg.slot_bytes ? 1 : 0;
  }
  shared.bytes += bytes - end;
  const auto [acts, done] = RunActors(graph, seed, 4);
  ASSERT_TRUE(done) << seed;
  using Held = std::pair<GroupRegisterId, int>;  // register and piece
  std::map<int64_t, Held> memory;                // by slot: all have one size
  const auto slot_of = [&](const Register& reg, int piece) {
    return reg.offset + piece % reg.slots * reg.stride;
  };
  for (const Register& reg : graph.registers()) {
    for (int t = 0; t < reg.initial_tokens && !reg.is_control(); ++t) {
      memory[slot_of(reg, t)] = {reg.id, t};
    }
  }
  std::vector<int> count(graph.groups().size(), 0);
  for (int id : acts) {
    const TaskGroup& group = graph.group(id);
    const int act = count[id]++;
    std::set<int64_t> read;
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      if (reg.is_control()) continue;
      const int piece = act / input.period;
      ASSERT_EQ(memory[slot_of(reg, piece)], Held(reg.id, piece))
          << "seed " << seed << " g" << id << " act " << act << "\n"
          << graph.ToString();
      read.insert(slot_of(reg, piece));
    }
    for (GroupRegisterId output : group.outputs) {
      const Register& reg = graph.reg(output);
      if (reg.is_control()) continue;
      const int piece = reg.initial_tokens + act / reg.period;
      const bool stays = read.contains(slot_of(reg, piece));
      ASSERT_FALSE(stays && !group.is<Collective>()) << "seed " << seed << " g" << id;
      shared.in_place += stays ? 1 : 0;
      memory[slot_of(reg, piece)] = {reg.id, piece};
    }
  }
}

TEST(StepOrderTest, SharedBytesHoldWhatTheirReadersExpect) {
  Shared shared;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto assigned = AssignSlots(WithAllReduces(RandomGraph(seed, seed % 4 != 0), seed));
    if (assigned.ok()) ExpectReadersFindTheirs(*assigned, seed, shared);
  }
  EXPECT_GT(shared.bytes, 200 * 4096);
  EXPECT_GT(shared.in_place, 200);
}

TEST(StepOrderTest, FramesHoldWhatTheirReadersExpect) {
  Shared shared;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    ExpectReadersFindTheirs(WithAllReduces(RandomStage(seed), seed), seed, shared);
  }
  EXPECT_GT(shared.in_frames, 1000);
  EXPECT_GT(shared.in_place, 200);
}

}  // namespace
}  // namespace braid::compiler
