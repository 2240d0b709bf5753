#include "compiler/plan/physical_graph.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/plan/exchange_moves.h"
#include "gtest/gtest.h"
#include "runtime/base/seeded_choice.h"
#include "tests/compiler/interpreter.h"

namespace braid::compiler {
namespace {

Placement RowOf2s(int first, std::vector<int64_t> hierarchy) {
  int64_t count = 1;
  for (int64_t n : hierarchy) count *= n;
  std::vector<DeviceId> devices;
  for (int i = first; i < first + count; ++i) devices.push_back({i / 2, i % 2});
  return *Placement::Make("cpu", devices, std::move(hierarchy));
}

TensorLayout Layout(Shape shape, NdSbp sbp) {
  return {{DType::kF32, std::move(shape)}, std::move(sbp)};
}

// Appends a compute group that reads `inputs` and writes one register; returns its id.
GroupId AddStep(PhysicalGraph& graph, std::string name, std::vector<GroupRegisterId> inputs) {
  TaskGroup group;
  group.name = name;
  group.placement = RowOf2s(0, {2});
  KernelCall kernel;
  kernel.op = "identity";
  kernel.name = name;
  for (GroupRegisterId reg : inputs) {
    kernel.inputs.push_back({.index = static_cast<int>(group.inputs.size())});
    kernel.input_layouts.push_back(graph.reg(reg).parts[0].layout);
    group.inputs.push_back({.reg = reg});
  }
  Register reg;
  reg.name = name;
  reg.placement = group.placement;
  reg.producer = static_cast<GroupId>(graph.groups().size());
  reg.parts.emplace_back().layout = Layout({6, 3}, sbp::S(0));
  reg.parts[0].name = name;
  kernel.outputs.push_back({.source = OperandRef::Source::kOutput});
  kernel.output_layouts.push_back(reg.parts[0].layout);
  group.outputs = {graph.AddRegister(std::move(reg)).id};
  group.work = Compute{.kernels = {std::move(kernel)}};
  return graph.AddGroup(std::move(group)).id;
}

TEST(TensorLayout, BoxesOfMicroBatches) {
  TensorLayout layout = Layout({12, 5}, sbp::S(0));
  const Placement placement = RowOf2s(0, {4});
  EXPECT_EQ(RegionOf(layout, placement, 1).ToString(), "[3:6, 0:5]");
  layout.micro_batch_sbp = sbp::S(0);
  layout.micro_batches = 2;
  EXPECT_EQ(layout.ToString(), "f32[12, 5] S(0) micro_batches=S(0)/2");
  EXPECT_EQ(RegionOf(layout, placement, 1).ToString(), "[2:4, 0:5]");
  EXPECT_EQ(RegionOf(layout, placement, 3).ToString(), "[5:6, 0:5]");
  EXPECT_EQ(BytesOf(layout, placement, 3), 20);
  EXPECT_EQ(MaxBytesOf(layout, placement), 40);
}

TEST(PhysicalGraph, Text) {
  PhysicalGraph graph;
  graph.job = "train";
  const GroupId a = AddStep(graph, "a", {});
  const GroupId b = AddStep(graph, "b", {graph.group(a).outputs[0], graph.group(a).outputs[0]});
  graph.group(b).acts_per_step = 4;
  graph.AddControlEdge(b, a, 1);
  graph.notes.push_back("a choice");
  graph.LayOutParts();
  EXPECT_EQ(graph.ToString(),
            R"(job "train" nodes=1 micro_batches=1
g0 compute "a" on=cpu[2]{0.0 0.1} (r2)->(r0)
  identity "a" ()->(o0) ()->(f32[6, 3] S(0))
g1 compute "b" on=cpu[2]{0.0 0.1} acts_per_step=4 (r0, r0)->(r1, r2)
  identity "b" (i0, i1)->(o0) (f32[6, 3] S(0), f32[6, 3] S(0))->(f32[6, 3] S(0))
r0 "a" of=g0 bytes=64 f32[6, 3] S(0)
r1 "b" of=g1 bytes=64 f32[6, 3] S(0)
r2 "b->a" of=g1 period=4 tokens=1 control
# a choice
)");
}

TEST(PhysicalGraph, ControlEdgesBalanceRates) {
  PhysicalGraph graph;
  const GroupId slow = AddStep(graph, "slow", {});
  const GroupId fast = AddStep(graph, "fast", {});
  graph.group(fast).acts_per_step = 6;
  graph.AddControlEdge(slow, fast, 0);
  graph.AddControlEdge(fast, slow, 1);
  EXPECT_EQ(graph.reg(graph.group(slow).outputs[1]).period, 1);
  EXPECT_EQ(graph.group(fast).inputs[0].period, 6);
  EXPECT_EQ(graph.reg(graph.group(fast).outputs[1]).period, 6);
  EXPECT_EQ(graph.group(slow).inputs[0].period, 1);
  EXPECT_EQ(graph.group(slow).inputs[0].reg, graph.group(fast).outputs[1]);
}

TEST(PhysicalGraph, PartsAreAlignedAndInOrder) {
  PhysicalGraph graph;
  Register reg;
  reg.placement = RowOf2s(0, {2});
  reg.parts.emplace_back().layout = Layout({5, 3}, sbp::S(0));  // 36 bytes on rank 0
  reg.parts.emplace_back().layout = Layout({0, 3}, sbp::B);
  reg.parts.emplace_back().layout = Layout({20}, sbp::B);  // 80 bytes
  graph.AddRegister(reg);
  graph.LayOutParts();
  EXPECT_EQ(graph.reg(0).parts[0].offset, 0);
  EXPECT_EQ(graph.reg(0).parts[1].offset, 64);
  EXPECT_EQ(graph.reg(0).parts[2].offset, 64);
  EXPECT_EQ(graph.reg(0).slot_bytes, 192);
}

TEST(PhysicalGraph, PruneRenumbers) {
  PhysicalGraph graph;
  const GroupId a = AddStep(graph, "a", {});
  const GroupId dead = AddStep(graph, "dead", {graph.group(a).outputs[0]});
  graph.AddControlEdge(dead, a, 1);
  const GroupId b = AddStep(graph, "b", {graph.group(a).outputs[0]});
  graph.Prune({true, false, true}, {true, false, false, true});
  ASSERT_EQ(graph.groups().size(), 2u);
  ASSERT_EQ(graph.registers().size(), 2u);
  EXPECT_EQ(b, 2);
  EXPECT_EQ(graph.ToString(),
            R"(job "" nodes=1 micro_batches=1
g0 compute "a" on=cpu[2]{0.0 0.1} ()->(r0)
  identity "a" ()->(o0) ()->(f32[6, 3] S(0))
g1 compute "b" on=cpu[2]{0.0 0.1} (r0)->(r1)
  identity "b" (i0)->(o0) (f32[6, 3] S(0))->(f32[6, 3] S(0))
r0 "a" of=g0 f32[6, 3] S(0)
r1 "b" of=g1 f32[6, 3] S(0)
)");
}

TEST(PhysicalGraph, TopologicalOrderOrTheCycle) {
  PhysicalGraph graph;
  const GroupId a = AddStep(graph, "a", {});
  const GroupId b = AddStep(graph, "b", {});
  const GroupId c = AddStep(graph, "c", {graph.group(b).outputs[0]});
  graph.AddControlEdge(c, a, 0);
  graph.AddControlEdge(a, b, 1);  // the previous act: no order within one
  auto order = graph.TopologicalOrder();
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(*order, (std::vector<GroupId>{b, c, a}));
  graph.AddControlEdge(a, b, 0);
  EXPECT_EQ(std::string(graph.TopologicalOrder().status().message()),
            "task groups wait for each other: 'a' -> 'b' -> 'c' -> 'a'");
}

std::string Describe(const TaskGroup& group, const Placement& source) {
  return absl::StrCat(source.ToString(), " ", group.movement()->source.ToString(), " -> ",
                      group.placement.ToString(), " ", group.movement()->destination.ToString());
}

auto Key(const Move& move) {
  return std::tuple(move.destination_rank, move.region.offset, move.source_rank);
}

// The moves give the right numbers, and both sides and the count tell of the same ones.
void CheckMoves(const TaskGroup& group, const Placement& source) {
  std::vector<Move> to, from;
  for (int rank = 0; rank < group.placement.size(); ++rank) {
    for (Move& move : ExchangeMoves(group, source).To(rank)) {
      ASSERT_EQ(move.destination_rank, rank);
      to.push_back(std::move(move));
    }
  }
  for (int rank = 0; rank < source.size(); ++rank) {
    for (Move& move : ExchangeMoves(group, source).From(rank)) {
      ASSERT_EQ(move.source_rank, rank);
      from.push_back(std::move(move));
    }
  }
  PhysicalGraph graph;
  Register input;
  input.placement = source;
  input.parts.emplace_back().layout = group.movement()->source;
  graph.AddRegister(std::move(input));
  graph.AddRegister({});
  const Numbers logical = TestValues(group.movement()->source.type.shape);
  Interpreter interpreter(graph);
  interpreter.Set(0, Cut(logical, group.movement()->source, source));
  interpreter.Run(group);
  ASSERT_EQ(Compare(interpreter.Get(1), logical, group.movement()->destination, group.placement),
            "")
      << Describe(group, source);

  auto by_key = [](const Move& a, const Move& b) { return Key(a) < Key(b); };
  std::sort(to.begin(), to.end(), by_key);
  std::sort(from.begin(), from.end(), by_key);
  ASSERT_EQ(to.size(), from.size()) << Describe(group, source);
  for (size_t i = 0; i < to.size(); ++i) {
    ASSERT_EQ(Key(to[i]), Key(from[i])) << Describe(group, source);
    ASSERT_EQ(to[i].region, from[i].region) << Describe(group, source);
    ASSERT_EQ(to[i].add, from[i].add) << Describe(group, source);
    ASSERT_EQ(to[i].is_whole, from[i].is_whole) << Describe(group, source);
  }
  const ExchangeTraffic traffic = ExchangeMoves(group, source).Traffic();
  ASSERT_EQ(traffic.total_bytes, interpreter.total_bytes());
  ASSERT_EQ(traffic.busiest_bytes, interpreter.busiest_bytes());
}

TaskGroup ExchangeGroup(TensorLayout from, TensorLayout to, Placement destination) {
  TaskGroup group;
  Movement& movement = group.work.emplace<Exchange>().movement;
  group.placement = std::move(destination);
  movement.source = std::move(from);
  movement.destination = std::move(to);
  for (const Sbp& kind : movement.source.sbp.dims()) {
    if (kind.is_partial()) movement.reduction = kind.kind;
  }
  group.inputs = {{.reg = 0}};
  group.outputs = {1};
  return group;
}

TEST(Moves, RandomLayoutsAgreeFromBothSides) {
  const std::vector<std::vector<int64_t>> hierarchies = {
      {1}, {2}, {3}, {5}, {2, 2}, {3, 2}, {1, 3}, {4, 1}, {2, 2, 2}, {2, 1, 3}};
  SeededChoice choose(3);
  auto pick = [&choose](const auto& from) { return from[choose.Below(from.size())]; };
  for (int round = 0; round < 3000; ++round) {
    // One kind of partial value a layout.
    auto layout = [&](const Placement& placement) {
      const Sbp partial = pick(std::vector<Sbp>{sbp::P, sbp::P, sbp::Pmax, sbp::Pmin});
      std::vector<Sbp> dims;
      for (size_t dim = 0; dim < placement.hierarchy().size(); ++dim) {
        dims.push_back(pick(std::vector<Sbp>{sbp::S(0), sbp::S(1), sbp::B, partial}));
      }
      return NdSbp(std::move(dims));
    };
    const Placement source = RowOf2s(0, pick(hierarchies));
    const Placement destination = RowOf2s(pick(std::vector<int>{0, 1, 2, 16}), pick(hierarchies));
    const Shape shape = {static_cast<int64_t>(choose.Below(8)),
                         static_cast<int64_t>(choose.Below(8))};
    CheckMoves(ExchangeGroup(Layout(shape, layout(source)), Layout(shape, layout(destination)),
                             destination),
               source);
    if (HasFatalFailure()) return;
  }
}

std::string Text(const std::vector<Move>& moves) {
  std::string text;
  for (const Move& move : moves) {
    absl::StrAppend(&text, text.empty() ? "" : " ", move.source_rank, "->", move.destination_rank,
                    move.region.ToString(), move.add ? "+" : "");
  }
  return text;
}

// Copies are read from the own device, else the same node (two devices each), else in turn.
TEST(Moves, CopiesAreReadNearby) {
  const TaskGroup group =
      ExchangeGroup(Layout({4}, sbp::B), Layout({4}, sbp::S(0)), RowOf2s(1, {4}));
  const Placement source = RowOf2s(0, {3});
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(0)), "1->0[0:1]");
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(1)), "2->1[1:2]");
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(2)), "2->2[2:3]");
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(3)), "0->3[3:4]");
}

TEST(Moves, AddendsStayOrGoRound) {
  const TaskGroup group = ExchangeGroup(Layout({2}, sbp::P), Layout({2}, sbp::P), RowOf2s(2, {2}));
  const Placement source = RowOf2s(0, {4});
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(0)), "0->0[0:2] 2->0[0:2]+");
  EXPECT_EQ(Text(ExchangeMoves(group, source).To(1)), "1->1[0:2] 3->1[0:2]+");
}

TEST(Moves, ManyRanksCostLittle) {
  const TaskGroup group =
      ExchangeGroup(Layout({1 << 20}, sbp::S(0)), Layout({1 << 20}, sbp::S(0)), RowOf2s(0, {768}));
  const Placement source = RowOf2s(0, {1024});
  EXPECT_EQ(ExchangeMoves(group, source).To(700).size(), 2u);
  EXPECT_EQ(ExchangeMoves(group, source).From(1000).size(), 2u);
  // Too many pairs to count one by one; the total is exact all the same.
  const ExchangeTraffic traffic = ExchangeMoves(group, source).Traffic();
  int64_t total = 0;
  for (int rank = 0; rank < 768; ++rank) {
    for (const Move& move : ExchangeMoves(group, source).To(rank)) {
      if (move.source_rank != rank) total += move.region.size.num_elements() * 4;
    }
  }
  EXPECT_EQ(traffic.total_bytes, total);
}

}  // namespace
}  // namespace braid::compiler
