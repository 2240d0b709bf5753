#include "compiler/physical/chains.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/physical/bucket_collectives.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/plan/invariants.h"
#include "compiler/verify.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

// Both passes; then what stands behind them in compilation must accept the result.
absl::StatusOr<PhysicalGraph> Chained(const absl::StatusOr<PhysicalGraph>& before) {
  if (!before.ok()) return before.status();
  auto graph = BucketCollectives(*before);
  if (!graph.ok()) return graph.status();
  graph = FormChains(*std::move(graph));
  if (!graph.ok()) return graph.status();
  EXPECT_EQ(CompareRuns(*before, *graph), "");
  EXPECT_TRUE(VerifyInvariants(*graph).ok()) << VerifyInvariants(*graph);
  auto planned = AssignSlots(*graph);
  if (planned.ok()) planned = PlanMemory(*std::move(planned), JobRegistry());
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (planned.ok()) {
    EXPECT_TRUE(Verify(*planned, JobRegistry()).ok()) << Verify(*planned, JobRegistry());
  }
  return graph;
}

std::string ChainsOf(const absl::StatusOr<PhysicalGraph>& before) {
  auto graph = Chained(before);
  return graph.ok() ? SummaryOf(*graph) : graph.status().ToString();
}

// A step on one device is a reader, the variables and one chain.
TEST(Chains, OneDevice) {
  EXPECT_EQ(ChainsOf(LowerMlp({}, CpuDevices(1, 1))), R"(
g0 compute 'data'
g1 variable 'fc1.weight..fc2.weight (3 variables)'
g2 compute 'chain fc1..fc2.weight.update (23 ops)' <- g0 (2) <- g1 (3)
)");
}

TEST(Chains, DataParallel) {
  EXPECT_EQ(ChainsOf(LowerMlp({}, CpuDevices(1, 2))), R"(
g0 compute 'data'
g1 variable 'fc1.weight..fc2.weight (3 variables)'
g2 compute 'chain fc1..d_fc1.weight (19 ops)' <- g0 (2) <- g1 (3)
g3 exchange 'mean.slice_exchange' <- g2
g4 compute 'loss' <- g3
g5 collective 'd_fc2.weight.all_reduce..d_fc1.weight.all_reduce (3 tensors)' <- g2 (3)
g6 compute 'chain lr..fc2.weight.update (4 ops)' <- g1 (3) <- g5 (3)
)");
}

// What updates the variables of one bucket of gradients does not wait for the others.
TEST(Chains, UpdatesGoWithTheirGradients) {
  auto before = LowerMlp({}, CpuDevices(1, 2));
  ASSERT_TRUE(before.ok()) << before.status();
  auto graph = FormChains(*before);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(CompareRuns(*before, *graph), "");
  EXPECT_EQ(SummaryOf(*graph), R"(
g0 compute 'data'
g1 variable 'fc1.weight'
g2 variable 'fc1.bias'
g3 variable 'fc2.weight'
g4 compute 'chain fc1..d_fc2.weight (16 ops)' <- g0 <- g1 <- g2 <- g3 <- g0
g5 exchange 'mean.slice_exchange' <- g4
g6 compute 'loss' <- g5
g7 compute 'chain d_fc1..d_fc1.bias (2 ops)' <- g4 (2)
g8 compute 'd_fc1.weight' <- g0 <- g7
g9 compute 'lr'
g10 collective 'd_fc1.weight.all_reduce' <- g8
g11 compute 'fc1.weight.update' <- g1 <- g10 <- g9
g12 collective 'd_fc1.bias.all_reduce' <- g7
g13 compute 'fc1.bias.update' <- g2 <- g12 <- g9
g14 collective 'd_fc2.weight.all_reduce' <- g4
g15 compute 'fc2.weight.update' <- g3 <- g14 <- g9
)");
}

TEST(Chains, Pipeline) {
  EXPECT_EQ(ChainsOf(LowerMlp(
                {.micro_batches = 4, .stage1 = " on=cpu[1]{0.0}", .stage2 = " on=cpu[1]{0.1}"},
                CpuDevices(1, 2))),
            R"(
g0 compute 'data' x4
g1 variable 'fc1.weight..fc1.bias (2 variables)'
g2 compute 'chain fc1..relu (3 ops)' x4 <- g0 <- g1 (2) for 4
g3 variable 'fc2.weight'
g4 exchange 'relu.slice_exchange' x4 <- g2
g5 exchange 'data:1.slice_exchange' x4 <- g0
g6 compute 'chain one..d_entropy.reshape (3 ops)'
g7 compute 'chain fc2..d_relu (9 ops)' x4 <- g4 <- g3 for 4 <- g5 <- g6 for 4
g8 exchange 'mean.accumulate.slice_exchange' <- g7 all 4
g9 compute 'loss' <- g8
g10 compute 'chain d_fc2.weight..d_fc2.weight.accumulate (2 ops)' x4 <- g4 <- g7
g11 exchange 'd_relu.slice_exchange' x4 <- g7
g12 compute 'chain d_fc1..d_fc1.weight.accumulate (5 ops)' x4 <- g2 <- g11 <- g0
g13 compute 'lr'
g14 compute 'chain fc1.weight.update..fc1.bias.update (2 ops)' <- g1 (2) <- g12 (2) all 4 <- g13
g15 exchange 'lr.slice_exchange' <- g13
g16 compute 'fc2.weight.update' <- g3 <- g10 all 4 <- g15
)");
}

TEST(Chains, Text) {
  auto graph = Chained(LowerText(R"(
%0:f32[8, 4] = input "x" () {dtype=f32 shape=[8, 4]} on=cpu[2]{0.0 1.0} sbp=()->(S(0)) at t.cc:1
%1:f32[4, 6] = variable "w" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 1.0} sbp=()->(B) at t.cc:2
%2:f32[6] = variable "b" () {dtype=f32 shape=[6]} on=cpu[2]{0.0 1.0} sbp=()->(B) at t.cc:2
%3:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0)) at t.cc:3
%4:f32[8, 6] = add "h" (%3, %2) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0)) at t.cc:3
%5:f32[4, 6] = tensordot "dw" (%0, %4) on=cpu[2]{0.0 1.0} sbp=(S(0), S(0))->(P) at t.cc:3
%6:f32[6] = reduce_sum "db" (%4) {axes=[0] keep_dims=false} on=cpu[2]{0.0 1.0} sbp=(S(0))->(P)
%7:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5} on=cpu[2]{0.0 1.0} sbp=()->(B) at t.cc:4
sgd_update "w.update" (%1, %5, %7) {weight_decay=0.0} on=cpu[2]{0.0 1.0} sbp=(B, B, B)->() at t.cc:4
sgd_update "b.update" (%2, %6, %7) {weight_decay=0.0} on=cpu[2]{0.0 1.0} sbp=(B, B, B)->() at t.cc:4
%8:f32[8, 6] = matmul "again" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0)) at t.cc:5
fetch "loss" (%8) {name="y"} on=cpu[1]{0.0} sbp=(B)->() at t.cc:6
)"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ("\n" + graph->ToString(), R"graph(
job "" nodes=2 micro_batches=1
g0 variable "w" on=cpu[2]{0.0 1.0} (r8)->(r0)
  variable "w" ()->(o0) {dtype=f32 shape=[4, 6]} ()->(f32[4, 6] B)
g1 variable "b" on=cpu[2]{0.0 1.0} (r7)->(r1)
  variable "b" ()->(o0) {dtype=f32 shape=[6]} ()->(f32[6] B)
g2 compute "chain x..db (5 ops)" on=cpu[2]{0.0 1.0} (r0, r1)->(r2, r3)
  input "x" ()->(o0) {dtype=f32 shape=[8, 4]} ()->(f32[8, 4] S(0))
  matmul "fc" (o0, i0)->(s0) (f32[8, 4] S(0), f32[4, 6] B)->(f32[8, 6] S(0))
  add "h" (s0, i1)->(s1) (f32[8, 6] S(0), f32[6] B)->(f32[8, 6] S(0))
  tensordot "dw" (o0, s1)->(o1) (f32[8, 4] S(0), f32[8, 6] S(0))->(f32[4, 6] P)
  reduce_sum "db" (s1)->(o1.1) {axes=[0] keep_dims=false} (f32[8, 6] S(0))->(f32[6] P)
  scratch f32[8, 6] S(0)
  scratch f32[8, 6] S(0)
g3 all_reduce "dw.all_reduce..db.all_reduce (2 tensors)" on=cpu[2]{0.0 1.0} stream=transfer (r3)->(r4) f32[4, 6] P -> f32[4, 6] B by=ring/262144
g4 compute "again" on=cpu[2]{0.0 1.0} (r2, r0)->(r5, r6)
  matmul "again" (i0, i1)->(o0) (f32[8, 4] S(0), f32[4, 6] B)->(f32[8, 6] S(0))
g5 compute "chain lr..w.update (3 ops)" on=cpu[2]{0.0 1.0} (r1, r4, r0, r6)->(r7, r8)
  constant "lr" ()->(s0) {dtype=f32 shape=[] value=0.5} ()->(f32[] B)
  sgd_update "b.update" (i0, i1.1, s0)->() {weight_decay=0.0} (f32[6] B, f32[6] B, f32[] B)->()
  sgd_update "w.update" (i2, i1, s0)->() {weight_decay=0.0} (f32[4, 6] B, f32[4, 6] B, f32[] B)->()
  scratch f32[] B
g6 exchange "again.slice_exchange" on=cpu[1]{0.0} stream=transfer (r5)->(r9) f32[8, 6] S(0) -> f32[8, 6] B
g7 compute "loss" on=cpu[1]{0.0} (r9)->()
  fetch "loss" (i0)->() {name="y"} (f32[8, 6] B)->()
r0 "w" of=g0 bytes=128 f32[4, 6] B variable=w
r1 "b" of=g1 bytes=64 f32[6] B variable=b
r2 "x" of=g2 bytes=64 f32[8, 4] S(0)
r3 "dw..db (2 tensors)" of=g2 bytes=192 f32[4, 6] P; f32[6] P +128
r4 "dw.all_reduce..db.all_reduce (2 tensors)" of=g3 bytes=192 f32[4, 6] B; f32[6] B +128
r5 "again" of=g4 bytes=128 f32[8, 6] S(0)
r6 "again->w.update" of=g4 control
r7 "b.update->b" of=g5 tokens=1 control
r8 "w.update->w" of=g5 tokens=1 control
r9 "again.slice_exchange" of=g6 bytes=192 f32[8, 6] B
)graph");
}

TEST(Chains, RandomGraphsKeepTheirMeaning) {
  size_t groups_before = 0, groups_after = 0, parts = 0, registers = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const PhysicalGraph before = RandomPhysicalGraph(seed);
    ASSERT_TRUE(VerifyInvariants(before).ok()) << VerifyInvariants(before);
    auto buckets = BucketCollectives(before, {.first_bytes = 128, .bytes = 512});
    ASSERT_TRUE(buckets.ok()) << buckets.status() << " seed " << seed;
    ASSERT_EQ(CompareRuns(before, *buckets), "") << "seed " << seed << "\n" << before.ToString();
    ASSERT_TRUE(VerifyInvariants(*buckets).ok()) << VerifyInvariants(*buckets) << " " << seed;
    auto chains = FormChains(*buckets);
    ASSERT_TRUE(chains.ok()) << chains.status() << " seed " << seed;
    ASSERT_EQ(CompareRuns(before, *chains), "") << "seed " << seed << "\n" << before.ToString();
    ASSERT_TRUE(VerifyInvariants(*chains).ok()) << VerifyInvariants(*chains) << " " << seed;
    auto slots = AssignSlots(*chains);
    ASSERT_TRUE(slots.ok()) << slots.status() << " seed " << seed;
    groups_before += before.groups().size();
    groups_after += chains->groups().size();
    for (const Register& reg : buckets->registers()) {
      parts += reg.parts.size() > 1 ? reg.parts.size() : 0;
      registers += reg.parts.size() > 1 ? 1 : 0;
    }
  }
  // Else nothing was tried.
  EXPECT_LT(groups_after * 10, groups_before * 9);
  EXPECT_GT(registers, 50u);
  EXPECT_GT(parts, registers * 2);
}

// 20,000 groups, every fourth of whose values is summed over 64 devices.
TEST(Chains, LargeGraphsAreCheap) {
  std::string text =
      "%0:f32[64, 4] = input \"x\" () {dtype=f32 shape=[64, 4]} on=$ sbp=()->(S(0))\n";
  std::string devices = "cpu[64]{";
  for (int i = 0; i < 64; ++i) absl::StrAppend(&devices, i == 0 ? "" : " ", i / 8, ".", i % 8);
  devices += "}";
  PhysicalGraph graph = [&] {
    constexpr int kLayers = 5000;
    for (int i = 0; i < kLayers; ++i) {
      const int at = i * 4;
      const std::string on = absl::StrCat(" on=", devices, " sbp=");
      absl::StrAppend(&text, "%", at + 1, ":f32[64, 4] = relu \"r", i, "\" (%", at, ")", on,
                      "(S(0))->(S(0))\n");
      absl::StrAppend(&text, "%", at + 2, ":f32[4, 4] = tensordot \"d", i, "\" (%", at, ", %",
                      at + 1, ")", on, "(S(0), S(0))->(P)\n");
      absl::StrAppend(&text, "%", at + 3, ":f32[4, 4] = exp \"e", i, "\" (%", at + 2, ")", on,
                      "(B)->(B)\n");
      absl::StrAppend(&text, "%", at + 4, ":f32[64, 4] = tanh \"t", i, "\" (%", at + 1, ")", on,
                      "(S(0))->(S(0))\n");
    }
    text.replace(text.find('$'), 1, devices);
    auto lowered = LowerText(text);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    return lowered.ok() ? *std::move(lowered) : PhysicalGraph();
  }();
  const size_t groups = graph.groups().size();
  ASSERT_GE(groups, 25000u);
  const auto start = std::chrono::steady_clock::now();
  auto chains = BucketCollectives(std::move(graph));
  ASSERT_TRUE(chains.ok()) << chains.status();
  chains = FormChains(*std::move(chains));
  ASSERT_TRUE(chains.ok()) << chains.status();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu groups to %zu in %.2f s\n", groups, chains->groups().size(), seconds.count());
  // 5,000 x 64 bytes in buckets of 1 MiB and more: one, and a chain before and after it.
  EXPECT_EQ(chains->groups().size(), 3u) << SummaryOf(*chains);
}

}  // namespace
}  // namespace braid::compiler
