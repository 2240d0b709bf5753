#include "compiler/physical/plan_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/physical/check_memory.h"
#include "compiler/verify.h"
#include "gtest/gtest.h"
#include "runtime/base/seeded_choice.h"
#include "tests/compiler/group_graph.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

int64_t ArenaBytes(const PhysicalGraph& graph) {
  int64_t end = 0;
  for (const Register& reg : graph.registers()) {
    if (reg.offset >= 0) end = std::max(end, reg.offset + reg.span_bytes());
  }
  return end;
}

std::map<std::string, int64_t> Offsets(const PhysicalGraph& graph) {
  std::map<std::string, int64_t> offsets;
  for (const Register& reg : graph.registers()) {
    if (!reg.is_control()) offsets[reg.name] = reg.offset;
  }
  return offsets;
}

TEST(PlanMemoryTest, AChainOfGroupsNeedsTwoBuffers) {
  GroupGraph g;
  std::vector<GroupId> groups;
  for (int i = 0; i < 6; ++i) groups.push_back(g.Group(absl::StrFormat("g%d", i)));
  for (int i = 0; i + 1 < 6; ++i) {
    g.Edge(absl::StrFormat("r%d", i), groups[i], {groups[i + 1]});
  }
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(Offsets(*graph), (std::map<std::string, int64_t>{
                                 {"r0", 0}, {"r1", 4096}, {"r2", 0}, {"r3", 4096}, {"r4", 0}}));
  // What must not be overtaken: the last reader of each buffer by its first writer of the next
  // step.
  std::vector<std::string> edges;
  for (const Register& reg : graph->registers()) {
    if (reg.is_control()) edges.push_back(absl::StrFormat("%s %d", reg.name, reg.initial_tokens));
  }
  EXPECT_EQ(edges, (std::vector<std::string>{"g5->g0 1"}));
}

TEST(PlanMemoryTest, WhatIsReadLaterKeepsItsBytes) {
  GroupGraph g;
  const GroupId a = g.Group("a"), b = g.Group("b"), c = g.Group("c"), d = g.Group("d");
  g.Edge("x", a, {b, d});
  g.Edge("y", b, {c});
  g.Edge("z", c, {d});
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(ArenaBytes(*graph), 3 * 4096);
}

// What is summed over the devices is summed where it lies, if nobody else reads the addends and the
// sum's readers are done when the next step's addends come.
TEST(PlanMemoryTest, AnAllReduceTakesTheBytesOfItsInput) {
  const auto offsets = [](bool is_read_twice, StreamKind reader) {
    GroupGraph g;
    const GroupId a = g.Group("a"), b = g.Group("b");
    const GroupId sum = g.Group("sum", {.stream = StreamKind::kTransfer, .work = Collective{}});
    const GroupId use = g.Group("use", {.stream = reader});
    g.graph.group(sum).movement()->source = g.graph.group(sum).movement()->destination =
        Floats(1024);
    g.Edge("x", a, is_read_twice ? std::vector<GroupId>{sum, b} : std::vector<GroupId>{sum});
    g.Edge("y", sum, {use});
    const auto graph = PlanMemory(g.graph, JobRegistry());
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
    return Offsets(*graph);
  };
  using Expected = std::map<std::string, int64_t>;
  EXPECT_EQ(offsets(false, StreamKind::kCompute), (Expected{{"x", 0}, {"y", 0}}));
  EXPECT_EQ(offsets(true, StreamKind::kCompute), (Expected{{"x", 0}, {"y", 4096}}));
  EXPECT_EQ(offsets(false, StreamKind::kTransfer), (Expected{{"x", 0}, {"y", 4096}}));
}

// 8 micro-batches there and back: what each act leaves is over before the next one, since what the
// first keeps for the last has one slot.
TEST(PlanMemoryTest, MicroBatchesShareActByAct) {
  const auto arena_bytes = [](int acts) {
    GroupGraph g;
    std::vector<GroupId> groups;
    for (int i = 0; i < 7; ++i) {
      groups.push_back(g.Group(absl::StrFormat("g%d", i), {.acts_per_step = acts}));
    }
    for (int i = 0; i + 1 < 7; ++i) {
      g.Edge(absl::StrFormat("r%d", i), groups[i], {groups[i + 1]});
    }
    g.Edge("stash", groups[0], {groups[6]});
    // Of all of them, there once a step.
    const GroupId update = g.Group("update"), after = g.Group("after");
    g.Edge("gradient", groups[6], {update}, {.floats = 2048, .period = acts});
    g.Edge("updated", update, {after}, {.floats = 2048});
    const auto graph = PlanMemory(g.graph, JobRegistry());
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus()) << graph->ToString();
    return ArenaBytes(*graph);
  };
  // Two buffers of the chain and the stash, or two that are twice as large.
  EXPECT_EQ(arena_bytes(1), 4 * 4096);
  // A gradient that gathers through all acts shares with what comes after them only.
  EXPECT_EQ(arena_bytes(8), (3 + 2) * 4096);
}

// A stage of a pipeline that keeps two of eight micro-batches has twice the memory of one: what the
// last act of the backward pass makes lies where things are that it has done with, though it has
// one of it at a time.
TEST(PlanMemoryTest, WhatAStageKeepsLiesInFrames) {
  constexpr int kLayers = 4, kActs = 8;
  const auto arena_bytes = [](int kept) {
    GroupGraph g;
    std::vector<GroupId> groups;
    for (int i = 0; i < 2 * kLayers; ++i) {
      groups.push_back(g.Group(absl::StrFormat("g%d", i), {.acts_per_step = kActs}));
    }
    for (int i = 0; i + 1 < 2 * kLayers; ++i) {
      const bool is_large = i + 2 == 2 * kLayers;
      g.Edge(absl::StrFormat("r%d", i), groups[i], {groups[i + 1]},
             {.floats = is_large ? 6 * 1024 : 1024});
    }
    for (int i = 0; i < kLayers; ++i) {
      g.Edge(absl::StrFormat("kept%d", i), groups[i], {groups[2 * kLayers - 1 - i]},
             {.floats = 3 * 1024, .slots = kept});
    }
    const auto graph = PlanMemory(g.graph, JobRegistry());
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus()) << graph->ToString();
    return ArenaBytes(*graph);
  };
  EXPECT_EQ(arena_bytes(1), (4 * 3 + 2) * 4096);
  EXPECT_EQ(arena_bytes(2), 2 * arena_bytes(1));
}

// Readers are a step ahead, and what comes from elsewhere or has tokens has bytes of its own, too.
// What is in pieces has y's and z's, which are over before it.
TEST(PlanMemoryTest, SlotsTokensAndTransfersDoNotShare) {
  GroupGraph g;
  const GroupId read = g.Group("read", {.stream = StreamKind::kInput});
  const GroupId a = g.Group("a"), b = g.Group("b"), c = g.Group("c");
  const GroupId send = g.Group("send", {.work = Exchange{}});
  const GroupId d = g.Group("d", {.acts_per_step = 2}), e = g.Group("e", {.acts_per_step = 2});
  g.Edge("batch", read, {a}, {.slots = 2});
  g.Edge("x", a, {b}, {.slots = 2});
  g.Edge("y", b, {c});
  g.Edge("back", c, {a}, {.tokens = 1});
  g.Edge("z", c, {send});
  g.Edge("sent", send, {d}, {.use_period = 2});
  g.Edge("piece", d, {e}, {.slots = 2});
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(ArenaBytes(*graph), 8 * 4096);
}

// What all have lies lowest, so that a stage has no gap for what another one needs.
TEST(PlanMemoryTest, StagesHaveTheSameBytes) {
  GroupGraph g;
  for (int stage = 0; stage < 3; ++stage) {
    const GroupId a = g.Group(absl::StrFormat("a%d", stage), {.placement = Cpu(2 * stage, 2)});
    g.Edge(absl::StrFormat("x%d", stage), a, {}, {.floats = 100});
  }
  const GroupId all = g.Group("all", {.placement = Cpu(0, 6)});
  g.Edge("y", all, {}, {.floats = 100});
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Offsets(*graph),
            (std::map<std::string, int64_t>{{"x0", 448}, {"x1", 448}, {"x2", 448}, {"y", 0}}));
}

TEST(PlanMemoryTest, AnUpdateWaitsForEveryReader) {
  GroupGraph g;
  const GroupId w = g.Group("w", {.work = VariableOwner{}});
  const GroupId forward = g.Group("forward", {.acts_per_step = 4}), sum = g.Group("sum"),
                monitor = g.Group("monitor", {.acts_per_step = 4}), update = g.Group("update");
  g.graph.group(update).kernels()[0].op = "assign";
  g.Edge("w", w, {forward, monitor}, {.use_period = 4, .variable = "w"});
  g.graph.group(update).inputs.push_back({0, 1});
  g.graph.group(update).kernels()[0].inputs.push_back({OperandRef::Source::kInput, 0, 0});
  g.graph.group(update).kernels()[0].input_layouts.push_back(Floats(1024));
  g.Edge("grads", forward, {sum}, {.period = 4});
  g.Edge("grad", sum, {update});
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(Offsets(*graph).at("w"), -1);
  int edges = 0;
  for (const Register& reg : graph->registers()) {
    if (!reg.is_control()) continue;
    ++edges;
    EXPECT_EQ(reg.name, "monitor->update");
    EXPECT_EQ(reg.period, 4);
  }
  EXPECT_EQ(edges, 1);
}

// ---- scratch -----------------------------------------------------------------------------------

// A chain x -> op -> op -> ... -> last with all but the ends in scratch.
PhysicalGraph Chain(const std::string& op, int length, const std::string& last) {
  GroupGraph g;
  const GroupId source = g.Group("source"), chain = g.Group("chain"), sink = g.Group("sink");
  g.Edge("x", source, {chain});
  g.Edge("y", chain, {sink});
  auto& compute = std::get<Compute>(g.graph.group(chain).work);
  std::vector<KernelCall>& kernels = compute.kernels;
  kernels.clear();
  for (int i = 0; i < length; ++i) {
    KernelCall& kernel = kernels.emplace_back();
    kernel.op = i + 1 == length ? last : op;
    kernel.name = absl::StrFormat("k%d", i);
    kernel.inputs = {i == 0 ? OperandRef{OperandRef::Source::kInput, 0, 0}
                            : OperandRef{OperandRef::Source::kScratch, i - 1, 0}};
    kernel.outputs = {i + 1 == length ? OperandRef{OperandRef::Source::kOutput, 0, 0}
                                      : OperandRef{OperandRef::Source::kScratch, i, 0}};
    kernel.input_layouts = kernel.output_layouts = {Floats(1024)};
    if (i + 1 < length) compute.scratch.push_back({.layout = Floats(1024)});
  }
  return g.graph;
}

std::vector<Scratch>& ScratchOf(PhysicalGraph& chain) {
  return std::get<Compute>(chain.group(1).work).scratch;
}

size_t NumScratch(const PhysicalGraph& chain) {
  return std::get<Compute>(chain.group(1).work).scratch.size();
}

TEST(PlanMemoryTest, ScratchLivesFromItsKernelToItsLastReader) {
  // A softmax cannot work inplace: two buffers take turns.
  auto graph = PlanMemory(Chain("softmax", 6, "softmax"), JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(EndOfScratch(graph->group(1)), 2 * 4096);
  // A relu can: one buffer.
  graph = PlanMemory(Chain("relu", 6, "softmax"), JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(EndOfScratch(graph->group(1)), 4096);
  // Unless the value is read again.
  PhysicalGraph again = Chain("relu", 6, "matmul");
  KernelCall& last = again.group(1).kernels().back();
  last.inputs.push_back({OperandRef::Source::kScratch, 0, 0});
  last.input_layouts.push_back(Floats(1024));
  graph = PlanMemory(again, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(EndOfScratch(graph->group(1)), 2 * 4096);
}

TEST(PlanMemoryTest, WhatBecomesAnOutputInPlaceIsWrittenThere) {
  const OperandRef output{OperandRef::Source::kOutput, 0, 0};
  // Back to the first kernel, which reads what is not the chain's own.
  auto graph = PlanMemory(Chain("relu", 4, "relu"), JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_TRUE(ScratchOf(*graph).empty());
  for (const KernelCall& kernel : graph->group(1).kernels()) EXPECT_EQ(kernel.outputs[0], output);
  // Back to what cannot work in place; before that, scratch keeps its numbers' order.
  PhysicalGraph chain = Chain("relu", 5, "relu");
  chain.group(1).kernels()[2].op = "softmax";
  graph = PlanMemory(chain, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(EndOfScratch(graph->group(1)), 4096);
  EXPECT_EQ(graph->group(1).kernels()[2].inputs[0],
            (OperandRef{OperandRef::Source::kScratch, 1, 0}));
  EXPECT_EQ(graph->group(1).kernels()[2].outputs[0], output);
  EXPECT_EQ(graph->group(1).kernels()[4].inputs[0], output);
  // One of two operands becomes the sum; the other stays in scratch.
  chain = Chain("relu", 4, "add");
  KernelCall& sum = chain.group(1).kernels().back();
  sum.inputs.insert(sum.inputs.begin(), {OperandRef::Source::kScratch, 0, 0});
  sum.input_layouts.push_back(Floats(1024));
  graph = PlanMemory(chain, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(EndOfScratch(graph->group(1)), 4096);
  // Not where it is broadcast, nor where acts share a slot.
  chain = Chain("relu", 2, "relu");
  ScratchOf(chain)[0].layout = Floats(1);
  EXPECT_EQ(NumScratch(*PlanMemory(chain, JobRegistry())), 1u);
  chain = Chain("relu", 2, "relu");
  chain.reg(chain.group(1).outputs[0]).period = 2;
  EXPECT_EQ(NumScratch(*PlanMemory(chain, JobRegistry())), 1u);
}

TEST(PlanMemoryTest, AnOutputWrittenTwiceIsRefused) {
  auto graph = PlanMemory(Chain("relu", 4, "relu"), JobRegistry());
  ASSERT_TRUE(graph.ok());
  graph->group(1).kernels()[2].op = "softmax";
  EXPECT_EQ(Verify(*graph, JobRegistry()).message(),
            "'chain' (relu 'k0' and 3 more, train.cc:2): kernel 'k2' writes again, and not in "
            "place, part 0 of its output 'y'");
  std::swap(graph->group(1).kernels()[0], graph->group(1).kernels()[2]);
  EXPECT_EQ(Verify(*graph, JobRegistry()).message(),
            "'chain' (softmax 'k2' and 3 more, train.cc:2): kernel 'k2' reads, before anybody "
            "wrote it, part 0 of its output 'y'");
}

TEST(PlanMemoryTest, ScratchIsReshapedInPlace) {
  PhysicalGraph chain = Chain("relu", 6, "softmax");
  TaskGroup& group = chain.group(1);
  TensorLayout reshaped = Floats(1024);
  reshaped.type.shape = {32, 32};
  group.kernels()[2].op = "reshape";
  group.kernels()[2].attrs.Set("shape", std::vector<int64_t>{32, 32});
  group.kernels()[2].output_layouts = {reshaped};
  ScratchOf(chain)[2].layout = reshaped;
  auto graph = PlanMemory(chain, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus());
  EXPECT_EQ(ScratchOf(*graph)[2].offset, ScratchOf(*graph)[1].offset);
  // What is larger than it gets new bytes.
  reshaped.type.shape = {64, 32};
  ScratchOf(chain)[2].layout = reshaped;
  graph = PlanMemory(chain, JobRegistry());
  ASSERT_TRUE(graph.ok());
  EXPECT_NE(ScratchOf(*graph)[2].offset, ScratchOf(*graph)[1].offset);
}

TEST(PlanMemoryTest, ScratchOnWhatIsStillReadIsRefused) {
  auto graph = PlanMemory(Chain("softmax", 4, "softmax"), JobRegistry());
  ASSERT_TRUE(graph.ok());
  ScratchOf(*graph)[1].offset = ScratchOf(*graph)[0].offset;
  EXPECT_EQ(
      Verify(*graph, JobRegistry()).message(),
      "'chain' (softmax 'k0' and 3 more, train.cc:2): kernel 'k1' writes scratch at byte 0 on "
      "what is still to be read");
}

// ---- many --------------------------------------------------------------------------------------

// Random programs, as a training step is: each group reads some of what came before.
PhysicalGraph RandomProgram(uint64_t seed, int groups, int window) {
  SeededChoice choice(seed);
  GroupGraph g;
  std::vector<std::vector<GroupId>> readers(groups);
  for (int i = 0; i < groups; ++i) {
    const Placement placement = choice.Below(4) == 0 ? Cpu(1, 1) : Cpu(0, 1);
    g.Group(absl::StrFormat("g%d", i), {.placement = placement});
    for (uint64_t n = choice.Below(3); n > 0 && i > 0; --n) {
      const int from = i - 1 - static_cast<int>(choice.Below(std::min(i, window)));
      const bool is_known = !readers[from].empty() && readers[from].back() == i;
      if (g.graph.group(from).placement == placement && !is_known) readers[from].push_back(i);
    }
  }
  for (int i = 0; i < groups; ++i) {
    g.Edge(absl::StrFormat("r%d", i), i, readers[i],
           {.floats = 1024 * (1 + static_cast<int64_t>(choice.Below(8)))});
  }
  return g.graph;
}

TEST(PlanMemoryTest, RandomProgramsAreOrderedAndDeterministic) {
  int64_t shared = 0, apart = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto slots = AssignSlots(RandomProgram(seed, 5 + seed % 40, 6));
    ASSERT_TRUE(slots.ok()) << slots.status();
    const auto graph = PlanMemory(*slots, JobRegistry());
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(Verify(*graph, JobRegistry()), absl::OkStatus()) << seed;
    EXPECT_EQ(graph->ToString(), PlanMemory(*slots, JobRegistry())->ToString());
    shared += ArenaBytes(*graph);
    for (const Register& reg : graph->registers()) {
      if (reg.offset >= 0) apart += reg.slots * reg.slot_bytes;
    }
  }
  EXPECT_LT(shared, apart / 2);
}

// ---- out of memory -----------------------------------------------------------------------------

TEST(CheckMemoryTest, NamesTheDeviceTheValuesAndTheLargest) {
  GroupGraph g;
  const GroupId w = g.Group("w", {.placement = Cpu(0, 2), .work = VariableOwner{}});
  const GroupId a = g.Group("fc1", {.placement = Cpu(0, 2)});
  const GroupId b = g.Group("fc2", {.placement = Cpu(1, 1)});
  g.Edge("w", w, {a}, {.floats = 500, .variable = "fc1.weight"});
  g.Edge("h", a, {}, {.floats = 1000});
  g.Edge("y", b, {}, {.floats = 3000, .slots = 2});
  g.graph.job = "train";
  const auto graph = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(graph.ok());
  // 4,032 bytes of h, twice 12,032 of y, and 2,000 of the variable.
  EXPECT_EQ(CheckMemory(*graph, 30096), absl::OkStatus());
  const absl::Status status = CheckMemory(*graph, 30095);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "job 'train' needs 30096 bytes (29.4 KiB) on node 0 cpu:1, which has 30095 bytes (29.4 "
            "KiB): 28096 bytes (27.4 KiB) for registers, 0 bytes for scratch, 2000 bytes for "
            "variables; the largest:\n"
            "  register 'y' f32[3000] B: 24064 bytes (23.5 KiB) in 2 slots, of 'fc2' (work 'fc2', "
            "train.cc:3)\n"
            "  register 'h' f32[1000] B: 4032 bytes, of 'fc1' (work 'fc1', train.cc:2)\n"
            "  variable 'fc1.weight' f32[500] B: 2000 bytes, of 'w' (train.cc:1)\n"
            "use a smaller batch, more micro-batches, Recompute, or more devices over which the "
            "largest are split");
}

}  // namespace
}  // namespace braid::compiler
