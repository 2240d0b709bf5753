#include "compiler/lower.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "graph/op_registry.h"
#include "gtest/gtest.h"

namespace braid::compiler {
namespace {

const OpRegistry& LowerRegistry() {
  static const OpRegistry& registry = *new OpRegistry(BuiltinOps());
  return registry;
}

absl::StatusOr<PhysicalGraph> LowerText(const std::string& text) {
  absl::StatusOr<LogicalGraph> graph = LogicalGraph::Parse(text, &LowerRegistry());
  if (!graph.ok()) return graph.status();
  BoxingPlanner planner;
  return Lower(*graph, planner);
}

void ExpectLowered(const std::string& text, const std::string& expected) {
  auto graph = LowerText(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(absl::StrCat("\n", graph->ToString()), expected);
  auto order = graph->TopologicalOrder();
  EXPECT_TRUE(order.ok()) << order.status();
}

// One layer, data parallel: the gradient is summed, the update waits for the reader that it does
// not depend on ("again", as a backward matmul would), and the next step for the update.
TEST(Lower, DataParallelStep) {
  ExpectLowered(R"(
%0:f32[8, 4] = input "x" () {dtype=f32 shape=[8, 4]} on=cpu[2]{0.0 1.0} sbp=()->(S(0)) at t.cc:1
%1:f32[4, 6] = variable "w" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 1.0} sbp=()->(B) at t.cc:2
%2:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0)) at t.cc:3
%3:f32[4, 6] = tensordot "dw" (%0, %2) on=cpu[2]{0.0 1.0} sbp=(S(0), S(0))->(P) at t.cc:3
%4:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5} on=cpu[2]{0.0 1.0} sbp=()->(B) at t.cc:4
sgd_update "w.update" (%1, %3, %4) {weight_decay=0.0} on=cpu[2]{0.0 1.0} sbp=(B, B, B)->() at t.cc:4
%5:f32[8, 6] = matmul "again" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0)) at t.cc:5
fetch "loss" (%5) {name="y"} on=cpu[1]{0.0} sbp=(B)->() at t.cc:6
)",
                R"(
job "" nodes=2 micro_batches=1
g0 compute "x" on=cpu[2]{0.0 1.0} stream=input ()->(r0)
  input "x" ()->(o0) {dtype=f32 shape=[8, 4]} ()->(f32[8, 4] S(0))
g1 variable "w" on=cpu[2]{0.0 1.0} (r8)->(r1)
  variable "w" ()->(o0) {dtype=f32 shape=[4, 6]} ()->(f32[4, 6] B)
g2 compute "fc" on=cpu[2]{0.0 1.0} (r0, r1)->(r2)
  matmul "fc" (i0, i1)->(o0) (f32[8, 4] S(0), f32[4, 6] B)->(f32[8, 6] S(0))
g3 compute "dw" on=cpu[2]{0.0 1.0} (r0, r2)->(r3)
  tensordot "dw" (i0, i1)->(o0) (f32[8, 4] S(0), f32[8, 6] S(0))->(f32[4, 6] P)
g4 compute "lr" on=cpu[2]{0.0 1.0} ()->(r4)
  constant "lr" ()->(o0) {dtype=f32 shape=[] value=0.5} ()->(f32[] B)
g5 all_reduce "dw.all_reduce" on=cpu[2]{0.0 1.0} stream=transfer (r3)->(r5) f32[4, 6] P -> f32[4, 6] B by=ring/262144
g6 compute "w.update" on=cpu[2]{0.0 1.0} (r1, r5, r4, r9)->(r8)
  sgd_update "w.update" (i0, i1, i2)->() {weight_decay=0.0} (f32[4, 6] B, f32[4, 6] B, f32[] B)->()
g7 compute "again" on=cpu[2]{0.0 1.0} (r0, r1)->(r6, r9)
  matmul "again" (i0, i1)->(o0) (f32[8, 4] S(0), f32[4, 6] B)->(f32[8, 6] S(0))
g8 exchange "again.slice_exchange" on=cpu[1]{0.0} stream=transfer (r6)->(r7) f32[8, 6] S(0) -> f32[8, 6] B
g9 compute "loss" on=cpu[1]{0.0} stream=input (r7)->()
  fetch "loss" (i0)->() {name="y"} (f32[8, 6] B)->()
r0 "x" of=g0 bytes=64 f32[8, 4] S(0)
r1 "w" of=g1 bytes=128 f32[4, 6] B variable=w
r2 "fc" of=g2 bytes=128 f32[8, 6] S(0)
r3 "dw" of=g3 bytes=128 f32[4, 6] P
r4 "lr" of=g4 bytes=64 f32[] B
r5 "dw.all_reduce" of=g5 bytes=128 f32[4, 6] B
r6 "again" of=g7 bytes=128 f32[8, 6] S(0)
r7 "again.slice_exchange" of=g8 bytes=192 f32[8, 6] B
r8 "w.update->w" of=g6 tokens=1 control
r9 "again->w.update" of=g7 control
# boxing dw from P: all_reduce to B; 192 bytes, 96 of the busiest device, 2.01 us
# boxing again from S(0): slice_exchange to B; 96 bytes, 96 of the busiest device, 2.01 us
)");
}

// A shard of the variable is gathered for its readers, and updated where it is.
TEST(Lower, ShardedOptimizer) {
  ExpectLowered(R"(
%0:f32[4, 6] = variable "w" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 0.1} sbp=()->(S(1))
%1:f32[4, 6] = relu "r" (%0) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%2:f32[4, 6] = exp "e" (%0) on=cpu[2]{0.0 0.1} sbp=(B)->(B)
%3:f32[4, 6] = identity "g" (%1) on=cpu[2]{0.0 0.1} sbp=(P)->(P)
%4:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5} on=cpu[2]{0.0 0.1} sbp=()->(B)
sgd_update "up" (%0, %3, %4) {weight_decay=0.0} on=cpu[2]{0.0 0.1} sbp=(S(1), S(1), B)->()
)",
                R"(
job "" nodes=1 micro_batches=1
g0 variable "w" on=cpu[2]{0.0 0.1} (r10)->(r0)
  variable "w" ()->(o0) {dtype=f32 shape=[4, 6]} ()->(f32[4, 6] S(1))
g1 all_gather "w.all_gather" on=cpu[2]{0.0 0.1} stream=transfer (r0)->(r1) f32[4, 6] S(1) -> f32[4, 6] B by=direct
g2 compute "w.block_unpack" on=cpu[2]{0.0 0.1} (r1)->(r2)
  block_unpack "w.block_unpack" (i0)->(o0) {axis=1 parts=2} (f32[4, 6] B)->(f32[4, 6] B)
g3 compute "r" on=cpu[2]{0.0 0.1} (r2)->(r3)
  relu "r" (i0)->(o0) (f32[4, 6] B)->(f32[4, 6] B)
g4 compute "e" on=cpu[2]{0.0 0.1} (r2)->(r4)
  exp "e" (i0)->(o0) (f32[4, 6] B)->(f32[4, 6] B)
g5 compute "r.relayout" on=cpu[2]{0.0 0.1} (r3)->(r5)
  relayout "r.relayout" (i0)->(o0) {once=true} (f32[4, 6] B)->(f32[4, 6] P)
g6 compute "g" on=cpu[2]{0.0 0.1} (r5)->(r6)
  identity "g" (i0)->(o0) (f32[4, 6] P)->(f32[4, 6] P)
g7 compute "lr" on=cpu[2]{0.0 0.1} ()->(r7)
  constant "lr" ()->(o0) {dtype=f32 shape=[] value=0.5} ()->(f32[] B)
g8 compute "g.block_pack" on=cpu[2]{0.0 0.1} (r6)->(r8)
  block_pack "g.block_pack" (i0)->(o0) {axis=1 parts=2} (f32[4, 6] P)->(f32[4, 6] P)
g9 reduce_scatter "g.reduce_scatter" on=cpu[2]{0.0 0.1} stream=transfer (r8)->(r9) f32[4, 6] P -> f32[4, 6] S(1) by=direct
g10 compute "up" on=cpu[2]{0.0 0.1} (r0, r9, r7)->(r10)
  sgd_update "up" (i0, i1, i2)->() {weight_decay=0.0} (f32[4, 6] S(1), f32[4, 6] S(1), f32[] B)->()
r0 "w" of=g0 bytes=64 f32[4, 6] S(1) variable=w
r1 "w.all_gather" of=g1 bytes=128 f32[4, 6] B
r2 "w.block_unpack" of=g2 bytes=128 f32[4, 6] B
r3 "r" of=g3 bytes=128 f32[4, 6] B
r4 "e" of=g4 bytes=128 f32[4, 6] B
r5 "r.relayout" of=g5 bytes=128 f32[4, 6] P
r6 "g" of=g6 bytes=128 f32[4, 6] P
r7 "lr" of=g7 bytes=64 f32[] B
r8 "g.block_pack" of=g8 bytes=128 f32[4, 6] P
r9 "g.reduce_scatter" of=g9 bytes=64 f32[4, 6] S(1)
r10 "up->w" of=g10 tokens=1 control
# boxing w from S(1): all_gather to B; 96 bytes, 48 of the busiest device, 2 us
# boxing r from B: relayout to P; 0 bytes, 0 of the busiest device
# boxing g from P: reduce_scatter to S(1); 96 bytes, 48 of the busiest device, 2 us
)");
}

// Two micro-batches: the variable serves both acts, boxing of pieces acts as often as they, the
// sum over the acts is made once.
TEST(Lower, MicroBatches) {
  ExpectLowered(R"(
%0:f32[8, 4] = input "x" () {dtype=f32 shape=[8, 4]} on=cpu[1]{0.0} acts_per_step=2 micro_batches=()->(S(0)) sbp=()->(B)
%1:f32[4, 6] = variable "w" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 1.0} sbp=()->(B)
%2:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 1.0} acts_per_step=2 micro_batches=(S(0), B)->(S(0)) sbp=(S(0), B)->(S(0))
%3:f32[4, 6] = tensordot "dw" (%0, %2) on=cpu[2]{0.0 1.0} acts_per_step=2 micro_batches=(S(0), S(0))->(P) sbp=(S(0), S(0))->(P)
%4:f32[4, 6] = accumulate "dw.sum" (%3) on=cpu[2]{0.0 1.0} acts_per_step=2 micro_batches=(P)->(B) sbp=(P)->(P)
%5:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5} on=cpu[2]{0.0 1.0} sbp=()->(B)
sgd_update "up" (%1, %4, %5) {weight_decay=0.0} on=cpu[2]{0.0 1.0} sbp=(B, B, B)->()
%6:f32[8, 6] = matmul "again" (%0, %1) on=cpu[2]{0.0 1.0} acts_per_step=2 micro_batches=(S(0), B)->(S(0)) sbp=(S(0), B)->(S(0))
fetch "y" (%6) {name="y"} on=cpu[2]{0.0 1.0} acts_per_step=2 micro_batches=(S(0))->() sbp=(S(0))->()
)",
                R"(
job "" nodes=2 micro_batches=2
g0 compute "x" on=cpu[1]{0.0} stream=input acts_per_step=2 ()->(r0)
  input "x" ()->(o0) {dtype=f32 shape=[8, 4]} ()->(f32[8, 4] B micro_batches=S(0)/2)
g1 variable "w" on=cpu[2]{0.0 1.0} (r9)->(r1)
  variable "w" ()->(o0) {dtype=f32 shape=[4, 6]} ()->(f32[4, 6] B)
g2 exchange "x.slice_exchange" on=cpu[2]{0.0 1.0} stream=transfer acts_per_step=2 (r0)->(r2) f32[8, 4] B micro_batches=S(0)/2 -> f32[8, 4] S(0) micro_batches=S(0)/2
g3 compute "fc" on=cpu[2]{0.0 1.0} acts_per_step=2 (r2, r1/2)->(r3)
  matmul "fc" (i0, i1)->(o0) (f32[8, 4] S(0) micro_batches=S(0)/2, f32[4, 6] B)->(f32[8, 6] S(0) micro_batches=S(0)/2)
g4 compute "dw" on=cpu[2]{0.0 1.0} acts_per_step=2 (r2, r3)->(r4)
  tensordot "dw" (i0, i1)->(o0) (f32[8, 4] S(0) micro_batches=S(0)/2, f32[8, 6] S(0) micro_batches=S(0)/2)->(f32[4, 6] P micro_batches=P/2)
g5 compute "dw.sum" on=cpu[2]{0.0 1.0} acts_per_step=2 (r4)->(r5)
  accumulate "dw.sum" (i0)->(o0) (f32[4, 6] P micro_batches=P/2)->(f32[4, 6] P)
g6 compute "lr" on=cpu[2]{0.0 1.0} ()->(r6)
  constant "lr" ()->(o0) {dtype=f32 shape=[] value=0.5} ()->(f32[] B)
g7 all_reduce "dw.sum.all_reduce" on=cpu[2]{0.0 1.0} stream=transfer (r5)->(r7) f32[4, 6] P -> f32[4, 6] B by=ring/262144
g8 compute "up" on=cpu[2]{0.0 1.0} (r1, r7, r6, r10)->(r9)
  sgd_update "up" (i0, i1, i2)->() {weight_decay=0.0} (f32[4, 6] B, f32[4, 6] B, f32[] B)->()
g9 compute "again" on=cpu[2]{0.0 1.0} acts_per_step=2 (r2, r1/2)->(r8, r10)
  matmul "again" (i0, i1)->(o0) (f32[8, 4] S(0) micro_batches=S(0)/2, f32[4, 6] B)->(f32[8, 6] S(0) micro_batches=S(0)/2)
g10 compute "y" on=cpu[2]{0.0 1.0} stream=input acts_per_step=2 (r8)->()
  fetch "y" (i0)->() {name="y"} (f32[8, 6] S(0) micro_batches=S(0)/2)->()
r0 "x" of=g0 bytes=64 f32[8, 4] B micro_batches=S(0)/2
r1 "w" of=g1 bytes=128 f32[4, 6] B variable=w
r2 "x.slice_exchange" of=g2 bytes=64 f32[8, 4] S(0) micro_batches=S(0)/2
r3 "fc" of=g3 bytes=64 f32[8, 6] S(0) micro_batches=S(0)/2
r4 "dw" of=g4 bytes=128 f32[4, 6] P micro_batches=P/2
r5 "dw.sum" of=g5 period=2 bytes=128 f32[4, 6] P
r6 "lr" of=g6 bytes=64 f32[] B
r7 "dw.sum.all_reduce" of=g7 bytes=128 f32[4, 6] B
r8 "again" of=g9 bytes=64 f32[8, 6] S(0) micro_batches=S(0)/2
r9 "up->w" of=g8 tokens=1 control
r10 "again->up" of=g9 period=2 control
# boxing x from B: slice_exchange to S(0); 32 bytes, 32 of the busiest device, 2 us
# boxing dw.sum from P: all_reduce to B; 192 bytes, 96 of the busiest device, 2.01 us
)");
}

// Consumers that want the same share one transfer; one that wants less cuts what is there.
TEST(Lower, SharedRoutes) {
  ExpectLowered(R"(
%0:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]} on=cpu[2]{0.0 0.1} sbp=()->(S(1))
%1:f32[4, 6] = relu "a" (%0) on=cpu[2]{1.0 1.1} sbp=(B)->(B)
%2:f32[4, 6] = exp "b" (%0) on=cpu[2]{1.0 1.1} sbp=(B)->(B)
%3:f32[4, 6] = tanh "c" (%0) on=cpu[2]{1.0 1.1} sbp=(S(0))->(S(0))
)",
                R"(
job "" nodes=2 micro_batches=1
g0 compute "x" on=cpu[2]{0.0 0.1} stream=input ()->(r0)
  input "x" ()->(o0) {dtype=f32 shape=[4, 6]} ()->(f32[4, 6] S(1))
g1 exchange "x.slice_exchange" on=cpu[2]{1.0 1.1} stream=transfer (r0)->(r1) f32[4, 6] S(1) -> f32[4, 6] B
g2 compute "a" on=cpu[2]{1.0 1.1} (r1)->(r2)
  relu "a" (i0)->(o0) (f32[4, 6] B)->(f32[4, 6] B)
g3 compute "b" on=cpu[2]{1.0 1.1} (r1)->(r3)
  exp "b" (i0)->(o0) (f32[4, 6] B)->(f32[4, 6] B)
g4 compute "x.relayout" on=cpu[2]{1.0 1.1} (r1)->(r4)
  relayout "x.relayout" (i0)->(o0) {once=false} (f32[4, 6] B)->(f32[4, 6] S(0))
g5 compute "c" on=cpu[2]{1.0 1.1} (r4)->(r5)
  tanh "c" (i0)->(o0) (f32[4, 6] S(0))->(f32[4, 6] S(0))
r0 "x" of=g0 bytes=64 f32[4, 6] S(1)
r1 "x.slice_exchange" of=g1 bytes=128 f32[4, 6] B
r2 "a" of=g2 bytes=128 f32[4, 6] B
r3 "b" of=g3 bytes=128 f32[4, 6] B
r4 "x.relayout" of=g4 bytes=64 f32[4, 6] S(0)
r5 "c" of=g5 bytes=64 f32[4, 6] S(0)
# boxing x from S(1): slice_exchange to B; 192 bytes, 96 of the busiest device, 4.01 us
# boxing x from B: relayout to S(0); 0 bytes, 0 of the busiest device
)");
}

// Tensors without elements go the same ways.
TEST(Lower, EmptyTensors) {
  ExpectLowered(R"(
%0:f32[0, 6] = input "x" () {dtype=f32 shape=[0, 6]} on=cpu[2]{0.0 0.1} sbp=()->(S(1))
%1:f32[0, 6] = relu "a" (%0) on=cpu[2]{1.0 1.1} sbp=(B)->(B)
%2:f32[0, 6] = exp "b" (%0) on=cpu[2]{1.0 1.1} sbp=(B)->(B)
%3:f32[0, 6] = tanh "c" (%0) on=cpu[2]{1.0 1.1} sbp=(S(1))->(S(1))
%4:f32[0, 6] = mul "d" (%3, %3) on=cpu[2]{1.0 1.1} sbp=(S(1), S(1))->(S(1))
)",
                R"(
job "" nodes=2 micro_batches=1
g0 compute "x" on=cpu[2]{0.0 0.1} stream=input ()->(r0)
  input "x" ()->(o0) {dtype=f32 shape=[0, 6]} ()->(f32[0, 6] S(1))
g1 exchange "x.slice_exchange" on=cpu[2]{1.0 1.1} stream=transfer (r0)->(r1) f32[0, 6] S(1) -> f32[0, 6] B
g2 compute "a" on=cpu[2]{1.0 1.1} (r1)->(r2)
  relu "a" (i0)->(o0) (f32[0, 6] B)->(f32[0, 6] B)
g3 compute "b" on=cpu[2]{1.0 1.1} (r1)->(r3)
  exp "b" (i0)->(o0) (f32[0, 6] B)->(f32[0, 6] B)
g4 compute "c" on=cpu[2]{1.0 1.1} (r1)->(r4)
  tanh "c" (i0)->(o0) (f32[0, 6] S(1))->(f32[0, 6] S(1))
g5 compute "d" on=cpu[2]{1.0 1.1} (r4)->(r5)
  mul "d" (i0, i0)->(o0) (f32[0, 6] S(1), f32[0, 6] S(1))->(f32[0, 6] S(1))
r0 "x" of=g0 f32[0, 6] S(1)
r1 "x.slice_exchange" of=g1 f32[0, 6] B
r2 "a" of=g2 f32[0, 6] B
r3 "b" of=g3 f32[0, 6] B
r4 "c" of=g4 f32[0, 6] S(1)
r5 "d" of=g5 f32[0, 6] S(1)
# boxing x from S(1): slice_exchange to B; 0 bytes, 0 of the busiest device
)");
}

std::string Error(const std::string& text) {
  auto graph = LowerText(text);
  return graph.ok() ? "ok" : std::string(graph.status().message());
}

constexpr char kVariable[] = R"(
%0:f32[4] = variable "w" () {dtype=f32 shape=[4]} on=cpu[2]{0.0 0.1} sbp=()->(S(0)) at t.cc:1
%1:f32[4] = constant "c" () {dtype=f32 shape=[4] value=0.5} on=cpu[2]{0.0 0.1} sbp=()->(S(0))
)";

TEST(Lower, Errors) {
  const std::string variable = kVariable;
  const std::string assign =
      "assign \"one\" (%0, %1) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->() at t.cc:2\n";
  EXPECT_EQ(Error(variable + assign), "ok");
  EXPECT_EQ(Error(variable + assign +
                  "assign \"two\" (%0, %1) on=cpu[2]{0.0 0.1} sbp=(S(0), S(0))->() at t.cc:3\n"),
            "assign 'two' (t.cc:3) and assign 'one' (t.cc:2) both overwrite variable 'w' (t.cc:1); "
            "a variable may be updated once in a job");
  EXPECT_EQ(
      Error(variable + "assign \"one\" (%0, %1) on=cpu[2]{0.0 0.1} sbp=(B, B)->() at t.cc:2\n"),
      "assign 'one' (t.cc:2) overwrites variable 'w' (t.cc:1), which is S(0) on cpu[2]{0.0 0.1}, "
      "as B on cpu[2]{0.0 0.1}; an update runs where its variable is, and as it is laid out");
  EXPECT_EQ(Error(variable + "assign \"one\" (%0, %1) on=cpu[1]{0.1} sbp=(S(0), S(0))->()\n"),
            "assign 'one' overwrites variable 'w' (t.cc:1), which is S(0) on cpu[2]{0.0 0.1}, as "
            "S(0) on cpu[1]{0.1}; an update runs where its variable is, and as it is laid out");
  EXPECT_EQ(
      Error("%0:f32[4] = constant \"c\" () {dtype=f32 shape=[4] value=0.5} "
            "on=cpu[2, 2]{0.0 0.1 1.0 1.1} sbp=()->([P, P(max)])\n"),
      "constant 'c': layout [P, P(max)] mixes two kinds of partial values; make one of them B");
  EXPECT_EQ(Error("%0:f32[4] = constant \"c\" () {dtype=f32 shape=[4] value=0.5} sbp=()->(B)\n"),
            "constant 'c' has no placement");
  EXPECT_EQ(
      Error("%0:f32[4] = constant \"c\" () {dtype=f32 shape=[4] value=0.5} on=cpu[1]{0.0} "
            "acts_per_step=2 micro_batches=()->(S(0)) sbp=()->(B)\n"
            "%1:f32[4] = relu \"r\" (%0) on=cpu[1]{0.0} sbp=(B)->(B)\n"),
      "relu 'r' acts 1 times a step and reads 'c' as B over micro-batches, which is made 2 times a "
      "step, as S(0)");
}

}  // namespace
}  // namespace braid::compiler
