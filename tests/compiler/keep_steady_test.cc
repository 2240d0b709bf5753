#include "compiler/physical/keep_steady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/physical/bucket_collectives.h"
#include "compiler/physical/chains.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/physical/take_turns.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "tests/compiler/group_graph.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

using Names = std::vector<std::string>;

bool Says(const absl::Status& status, std::string_view part) {
  return std::string_view(status.message().data(), status.message().size()).find(part) !=
         std::string_view::npos;
}

PhysicalGraph Chained(const std::string& text) {
  auto graph = LowerText(text);
  if (graph.ok()) {
    graph->writes_variables = WritesVariables(*graph, JobRegistry());
    graph = BucketCollectives(*std::move(graph));
  }
  if (graph.ok()) graph = FormChains(*std::move(graph));
  if (graph.ok()) graph = AssignSlots(*std::move(graph));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : PhysicalGraph();
}

// With memory, turns and the whole proof.
PhysicalGraph Planned(PhysicalGraph graph) {
  auto planned = PlanMemory(std::move(graph), JobRegistry());
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return {};
  PhysicalGraph turned = TakeTurns(*std::move(planned), JobRegistry());
  EXPECT_EQ(Verify(turned, JobRegistry()), absl::OkStatus());
  return turned;
}

TaskGroup& ChainOf(PhysicalGraph& graph, std::string_view kernel) {
  for (const TaskGroup& group : graph.groups()) {
    for (const KernelCall& call : group.kernels()) {
      if (call.name == kernel) return graph.group(group.id);
    }
  }
  ADD_FAILURE() << "no kernel " << kernel;
  return graph.group(0);
}

// Names of the kernels whose results are kept, in order.
Names Kept(const PhysicalGraph& graph) {
  Names names;
  for (const TaskGroup& group : graph.groups()) {
    const auto* const compute = std::get_if<Compute>(&group.work);
    if (compute == nullptr) continue;
    for (const KernelCall& kernel : compute->kernels) {
      if (MakesKept(*compute, kernel)) names.push_back(kernel.name);
    }
  }
  return names;
}

// A weight that is scaled, transposed and cast, and used twice.
constexpr char kWeights[] = R"(
%0:f32[8, 64] = input "x" () {dtype=f32 shape=[8, 64]} on=cpu[1]{0.0} sbp=()->(B)
%1:f32[32, 64] = variable "w" () {dtype=f32 shape=[32, 64]} on=cpu[1]{0.0} sbp=()->(B)
%2:f32[32, 64] = scale "scaled" (%1) {factor=2.0} on=cpu[1]{0.0} sbp=(B)->(B)
%3:f32[64, 32] = transpose "turned" (%2) {perm=[1, 0]} on=cpu[1]{0.0} sbp=(B)->(B)
%4:f32[8, 32] = matmul "y" (%0, %3) on=cpu[1]{0.0} sbp=(B, B)->(B)
%5:f32[8, 32] = relu "z" (%4) on=cpu[1]{0.0} sbp=(B)->(B)
)";
constexpr char kFetched[] = R"(
fetch "f" (%5) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)";

TEST(KeepSteady, WhatDependsOnVariablesAlone) {
  PhysicalGraph graph =
      Planned(KeepSteady(Chained(absl::StrCat(kWeights, kFetched)), JobRegistry()));
  EXPECT_EQ(Kept(graph), (Names{"scaled", "turned"}));
  // Only what the product reads has to last; the other's bytes are not among the scratch.
  const TaskGroup& chain = ChainOf(graph, "y");
  const auto& compute = std::get<Compute>(chain.work);
  EXPECT_EQ(std::ranges::count(LastingScratch(compute), true), 1);
  EXPECT_EQ(EndOfKept(chain), 2 * 32 * 64 * 4);
  EXPECT_EQ(EndOfScratch(chain), (8 * 64 + 8 * 32) * 4);  // x and y
  EXPECT_TRUE(absl::StrContains(graph.ToString(), "kept"));
}

TEST(KeepSteady, NothingOfAJobThatWritesVariables) {
  const PhysicalGraph graph = KeepSteady(Chained(absl::StrCat(kWeights, kFetched, R"(
%6:f32[64] = variable "v" () {dtype=f32 shape=[64]} on=cpu[1]{0.0} sbp=()->(B)
%7:f32[64] = scale "more" (%6) {factor=2.0} on=cpu[1]{0.0} sbp=(B)->(B)
assign "write" (%6, %7) on=cpu[1]{0.0} sbp=(B, B)->()
)")),
                                         JobRegistry());
  EXPECT_EQ(Kept(graph), (Names{}));
}

TEST(KeepSteady, NoRandomNumbersAndNothingMuchLarger) {
  const PhysicalGraph graph = KeepSteady(Chained(absl::StrCat(kWeights, R"(
%6:f32[8, 32] = random_uniform "noise" () {dtype=f32 high=1.0 low=0.0 shape=[8, 32]} on=cpu[1]{0.0} sbp=()->(B)
%7:f32[8, 32] = add "noisy" (%5, %6) on=cpu[1]{0.0} sbp=(B, B)->(B)
%8:f32[32] = variable "b" () {dtype=f32 shape=[32]} on=cpu[1]{0.0} sbp=()->(B)
%9:f32[32768, 32] = broadcast_to "spread" (%8) {shape=[32768, 32]} on=cpu[1]{0.0} sbp=(B)->(B)
%10:f32[32] = reduce_sum "folded" (%9) {axes=[0] keep_dims=false} on=cpu[1]{0.0} sbp=(B)->(B)
%11:f32[8, 32] = add "sum" (%7, %10) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "f" (%11) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)")),
                                         JobRegistry());
  EXPECT_EQ(Kept(graph), (Names{"scaled", "turned"}));
}

// 0 bytes need no place, and what grows by and by is no more than what grows at once.
TEST(KeepSteady, NothingEmptyAndNothingThatGrowsInSteps) {
  const PhysicalGraph graph = KeepSteady(Chained(R"(
%0:f32[8, 4] = input "x" () {dtype=f32 shape=[8, 4]} on=cpu[1]{0.0} sbp=()->(B)
%1:f32[0, 4] = variable "e" () {dtype=f32 shape=[0, 4]} on=cpu[1]{0.0} sbp=()->(B)
%2:f32[0, 4] = scale "empty" (%1) {factor=2.0} on=cpu[1]{0.0} sbp=(B)->(B)
%3:f32[8, 4] = concat "joined" (%0, %2) {axis=0} on=cpu[1]{0.0} sbp=(B, B)->(B)
%4:f32[65536, 4] = variable "b" () {dtype=f32 shape=[65536, 4]} on=cpu[1]{0.0} sbp=()->(B)
%5:f32[3, 65536, 4] = broadcast_to "thrice" (%4) {shape=[3, 65536, 4]} on=cpu[1]{0.0} sbp=(B)->(B)
%6:f32[3, 3, 65536, 4] = broadcast_to "more" (%5) {shape=[3, 3, 65536, 4]} on=cpu[1]{0.0} sbp=(B)->(B)
%7:f32[4] = reduce_sum "sum" (%6) {axes=[0, 1, 2] keep_dims=false} on=cpu[1]{0.0} sbp=(B)->(B)
%8:f32[8, 4] = add "y" (%3, %7) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "f" (%8) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)"),
                                         JobRegistry());
  EXPECT_EQ(Kept(graph), (Names{"thrice"}));
}

// Two numbers of 4 bits in a byte and a scale for each 32 of them, by way of larger tensors that
// pass.
TEST(KeepSteady, WeightsThatAreQuantizedByBlocks) {
  PhysicalGraph graph = Planned(KeepSteady(Chained(R"(
%0:f32[8, 512] = input "x" () {dtype=f32 shape=[8, 512]} on=cpu[1]{0.0} sbp=()->(B)
%1:u8[1, 1024, 256] = variable "w" () {dtype=u8 shape=[1, 1024, 256]} on=cpu[1]{0.0} sbp=()->(B)
%2:i32[1, 1024, 256] = cast "wide" (%1) {dtype=i32} on=cpu[1]{0.0} sbp=(B)->(B)
%3:i32[2, 1024, 256] = broadcast_to "parts" (%2) {shape=[2, 1024, 256]} on=cpu[1]{0.0} sbp=(B)->(B)
%4:f32[2, 1024, 256] = cast "numbers" (%3) {dtype=f32} on=cpu[1]{0.0} sbp=(B)->(B)
%5:f32[1, 1024, 16, 1] = variable "s" () {dtype=f32 shape=[1, 1024, 16, 1]} on=cpu[1]{0.0} sbp=()->(B)
%6:f32[1, 1024, 16, 32] = broadcast_to "scales" (%5) {shape=[1, 1024, 16, 32]} on=cpu[1]{0.0} sbp=(B)->(B)
%7:f32[2, 1024, 256] = reshape "beside" (%6) {shape=[2, 1024, 256]} on=cpu[1]{0.0} sbp=(B)->(B)
%8:f32[2, 1024, 256] = mul "reals" (%4, %7) on=cpu[1]{0.0} sbp=(B, B)->(B)
%9:f32[512, 1024] = reshape "matrix" (%8) {shape=[512, 1024]} on=cpu[1]{0.0} sbp=(B)->(B)
%10:f32[8, 1024] = matmul "y" (%0, %9) on=cpu[1]{0.0} sbp=(B, B)->(B)
fetch "f" (%10) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)"),
                                           JobRegistry()));
  EXPECT_EQ(Kept(graph),
            (Names{"wide", "parts", "numbers", "scales", "beside", "reals", "matrix"}));
  const TaskGroup& chain = ChainOf(graph, "y");
  EXPECT_EQ(std::ranges::count(LastingScratch(std::get<Compute>(chain.work)), true), 1);
  EXPECT_LE(EndOfKept(chain), 3 * (2 << 20)) << "what lasts, and what passes beside it";
}

// A chain that is cut has what its products read, so that it keeps it.
TEST(KeepSteady, BesideWhatReadsIt) {
  const PhysicalGraph graph = Chained(R"(
%0:f32[8, 64] = input "x" () {dtype=f32 shape=[8, 64]} on=cpu[2]{0.0 0.1} sbp=()->(B)
%1:f32[64, 64] = variable "w" () {dtype=f32 shape=[64, 64]} on=cpu[2]{0.0 0.1} sbp=()->(S(1))
%2:f32[64, 64] = scale "first" (%1) {factor=2.0} on=cpu[2]{0.0 0.1} sbp=(S(1))->(S(1))
%3:f32[8, 64] = matmul "y" (%0, %2) on=cpu[2]{0.0 0.1} sbp=(B, S(1))->(S(1))
%4:f32[64, 64] = variable "v" () {dtype=f32 shape=[64, 64]} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%5:f32[64, 64] = scale "second" (%4) {factor=2.0} on=cpu[2]{0.0 0.1} sbp=(S(0))->(S(0))
%6:f32[8, 64] = matmul "z" (%3, %5) on=cpu[2]{0.0 0.1} sbp=(S(1), S(0))->(P)
%7:f32[64] = variable "u" () {dtype=f32 shape=[64]} on=cpu[2]{0.0 0.1} sbp=()->(B)
%8:f32[64] = scale "third" (%7) {factor=2.0} on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%9:f32[8, 64] = add "a" (%6, %8) on=cpu[2]{0.0 0.1} sbp=(B, B)->(B)
fetch "f" (%9) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)");
  PhysicalGraph kept = Planned(KeepSteady(graph, JobRegistry()));
  EXPECT_EQ(Kept(kept), (Names{"first", "second", "third"}));
  EXPECT_NE(ChainOf(kept, "z").id, ChainOf(kept, "a").id);
}

// As above, behind all_reduces that become one, for which the graph is rewritten once more.
TEST(KeepSteady, BehindABucket) {
  PhysicalGraph kept = Planned(KeepSteady(Chained(R"(
%0:f32[8, 64] = input "x" () {dtype=f32 shape=[8, 64]} on=cpu[2]{0.0 0.1} sbp=()->(S(1))
%1:f32[64, 64] = variable "v" () {dtype=f32 shape=[64, 64]} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%2:f32[8, 64] = matmul "y" (%0, %1) on=cpu[2]{0.0 0.1} sbp=(S(1), S(0))->(P)
%3:f32[64, 64] = variable "w" () {dtype=f32 shape=[64, 64]} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
%4:f32[8, 64] = matmul "z" (%0, %3) on=cpu[2]{0.0 0.1} sbp=(S(1), S(0))->(P)
%5:f32[64] = variable "u" () {dtype=f32 shape=[64]} on=cpu[2]{0.0 0.1} sbp=()->(B)
%6:f32[64] = scale "third" (%5) {factor=2.0} on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%7:f32[8, 64] = add "a" (%2, %6) on=cpu[2]{0.0 0.1} sbp=(B, B)->(B)
%8:f32[8, 64] = add "b" (%7, %4) on=cpu[2]{0.0 0.1} sbp=(B, B)->(B)
fetch "f" (%8) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)"),
                                          JobRegistry()));
  EXPECT_EQ(ChainOf(kept, "y").id, ChainOf(kept, "z").id);
  EXPECT_EQ(Kept(kept), (Names{"third"}));
}

TEST(KeepSteady, VerifyFindsWhatMayNotBeKept) {
  const PhysicalGraph planned =
      Planned(KeepSteady(Chained(absl::StrCat(kWeights, kFetched)), JobRegistry()));
  const auto scratch_of = [](PhysicalGraph& graph, const std::string& kernel) -> Scratch& {
    auto& compute = std::get<Compute>(ChainOf(graph, kernel).work);
    for (const KernelCall& call : compute.kernels) {
      if (call.name == kernel) return compute.scratch[call.outputs[0].index];
    }
    return compute.scratch[0];
  };
  // It depends on what is fed.
  PhysicalGraph graph = planned;
  scratch_of(graph, "y").is_kept = true;
  EXPECT_TRUE(Says(Verify(graph, JobRegistry()), "what kernel 'y' makes is kept"));
  // What is read every step lies where the next steady kernel writes.
  graph = planned;
  scratch_of(graph, "scaled").offset = scratch_of(graph, "turned").offset;
  EXPECT_TRUE(Says(Verify(graph, JobRegistry()), "still to be read"));
  // It depends on what only a step has.
  graph = planned;
  scratch_of(graph, "scaled").is_kept = false;
  EXPECT_TRUE(Says(Verify(graph, JobRegistry()), "what kernel 'turned' makes is kept"));
}

// Groups on one device keep what they keep in different bytes.
TEST(KeepSteady, GroupsKeepTheirOwn) {
  GroupGraph g;
  g.graph.writes_variables = false;
  const GroupId owner = g.Group("w", {.work = VariableOwner{}});
  const GroupId a = g.Group("a"), b = g.Group("b", {.placement = Cpu(0, 2)});
  g.Edge("w", owner, {a}, {.variable = "w"});
  const GroupId other_owner = g.Group("v", {.placement = Cpu(0, 2), .work = VariableOwner{}});
  g.Edge("v", other_owner, {b}, {.variable = "v"});
  for (const GroupId id : {a, b}) {
    const GroupId reader = g.Group("reader", {.placement = g.graph.group(id).placement});
    g.Edge("y", id, {reader});
    auto& compute = std::get<Compute>(g.graph.group(id).work);
    compute.scratch.push_back({.layout = Floats(1024)});
    const OperandRef scratch = {OperandRef::Source::kScratch, 0, 0};
    KernelCall steady = compute.kernels[0];
    steady.op = "scale";
    steady.outputs = compute.kernels[0].inputs = {scratch};
    compute.kernels.insert(compute.kernels.begin(), steady);
  }
  PhysicalGraph graph = Planned(KeepSteady(g.graph, JobRegistry()));
  EXPECT_EQ(Kept(graph), (Names{"a", "b"}));
  EXPECT_EQ(EndOfKept(graph.group(a)), 4096);
  EXPECT_EQ(EndOfKept(graph.group(b)), 2 * 4096);
  std::get<Compute>(graph.group(b).work).scratch[0].offset = 0;
  EXPECT_TRUE(Says(Verify(graph, JobRegistry()), "keep scratch in the same bytes"));
}

}  // namespace
}  // namespace braid::compiler
