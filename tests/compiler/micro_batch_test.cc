#include "compiler/logical/micro_batch.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/compiler/logical_passes.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {
namespace {

absl::StatusOr<LogicalGraph> Cut(const std::string& text, const Placement& devices) {
  BRAID_ASSIGN_OR_RETURN(LogicalGraph graph, LogicalGraph::Parse(text, &Registry()));
  BRAID_ASSIGN_OR_RETURN(graph, InferPlacement(std::move(graph), devices, devices.Slice(0, 1)));
  return MicroBatch(std::move(graph));
}

TEST(MicroBatch, Mlp) {
  auto graph = Cut(ToText({.micro_batches = 4}), Devices(1, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(MicroBatchText(*graph), R"(
data x4 ()->(S(0), S(0))
fc1.weight
fc1.bias
fc1 x4 (S(0), B)->(S(0))
fc1.add x4 (S(0), B)->(S(0))
relu x4 (S(0))->(S(0))
fc2.weight
fc2 x4 (S(0), B)->(S(0))
max x4 (S(0))->(S(0))
sum_exp x4 (S(0), S(0))->(S(0))
entropy x4 (S(0), S(0), S(0), S(0))->(S(0))
mean x4 (S(0))->(P)
mean.accumulate x4 (P)->(B)
loss
one
d_entropy.scale
d_entropy.reshape
d_entropy x4 (B)->(S(0))
d_fc2 x4 (S(0), S(0), S(0), S(0), S(0))->(S(0))
d_relu x4 (S(0), B)->(S(0))
d_fc2.weight x4 (S(0), S(0))->(P)
d_fc2.weight.accumulate x4 (P)->(B)
d_fc1 x4 (S(0), S(0))->(S(0))
d_fc1.bias x4 (S(0))->(P)
d_fc1.bias.accumulate x4 (P)->(B)
d_fc1.weight x4 (S(0), S(0))->(P)
d_fc1.weight.accumulate x4 (P)->(B)
lr
fc1.weight.update
fc1.bias.update
fc2.weight.update
)");
  const Op& accumulate = OpNamed(*graph, "d_fc1.weight.accumulate");
  EXPECT_EQ(accumulate.location.ToString(), "mlp.cc:2");
  EXPECT_EQ(accumulate.placement, OpNamed(*graph, "d_fc1.weight").placement);
}

TEST(MicroBatch, OneMicroBatchChangesNothing) {
  auto graph = LogicalGraph::Parse(ToText({}), &Registry());
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto cut = MicroBatch(*graph);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->ToString(), graph->ToString());
}

TEST(MicroBatch, TheBatchMustBeDivisible) {
  EXPECT_EQ(Cut(ToText({.micro_batches = 5}), Devices(1, 2)).status().message(),
            "read 'data': a batch of 64 (f32[64, 784]) cannot be cut into micro_batches = 5 equal "
            "parts; make the batch a multiple of 5 (mlp.cc:1)");
}

constexpr char kHead[] = R"(
%0:f32[8, 6] = read "x" () {batch=8 types="f32[8, 6]"} at net.cc:1
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} at net.cc:2
%2:f32[8, 6] = matmul "y" (%0, %1) at net.cc:3
%3:f32[] = reduce_mean "loss" (%2) {axes=[0, 1] keep_dims=false} at net.cc:4
@minimize loss=%3 optimizer="sgd_update" micro_batches=4
)";

// Linear ops take addends; what is not linear waits for the sum, which all share.
TEST(MicroBatch, AddendsPassLinearOpsAndAreSummedOnce) {
  auto graph = Cut(std::string(kHead) + R"(
%4:f32[] = scale "half" (%3) {factor=0.5}
%5:f32[] = square "square" (%4)
%6:f32[] = exp "exp" (%4)
%7:f32[] = add "sum" (%5, %6)
%8:f32[] = mul "late" (%4, %7)
fetch "f" (%8) {name="f"}
)",
                   Devices(1, 1));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(MicroBatchText(*graph), R"(
x x4 ()->(S(0))
w
y x4 (S(0), B)->(S(0))
loss x4 (S(0))->(P)
half x4 (P)->(P)
half.accumulate x4 (P)->(B)
square
exp
sum
late
f
)");
}

// Global batch statistics: all of the batch is there before any part goes on.
TEST(MicroBatch, PartsWaitForWhatAllPartsMake) {
  auto graph = Cut(std::string(kHead) + R"(
%4:f32[6] = reduce_mean "mean" (%2) {axes=[0] keep_dims=false} at net.cc:5
%5:f32[8, 6] = sub "centered" (%2, %4) at net.cc:6
%6:f32[] = reduce_sum "count" (%5) {axes=[0, 1] keep_dims=false}
%7:f32[] = reciprocal "factor" (%6)
%8:f32[1, 1] = reshape "one" (%7) {shape=[1, 1]}
%9:f32[8, 6] = broadcast_to "factors" (%8) {shape=[8, 6]}
%10:f32[8, 6] = mul "weighted" (%5, %9)
%11:f32[] = reduce_sum "sum" (%10) {axes=[0, 1] keep_dims=false}
%12:f32[] = mul "late" (%11, %7)
fetch "f" (%12) {name="f"}
)",
                   Devices(1, 1));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(MicroBatchText(*graph), R"(
x x4 ()->(S(0))
w
y x4 (S(0), B)->(S(0))
loss x4 (S(0))->(P)
mean x4 (S(0))->(P)
mean.accumulate x4 (P)->(B)
centered x4 (S(0), B)->(S(0))
count x4 (S(0))->(P)
count.accumulate x4 (P)->(B)
factor
one
factors x4 (B)->(S(0))
weighted x4 (S(0), S(0))->(S(0))
sum x4 (S(0))->(P)
sum.accumulate x4 (P)->(B)
late
f
)");
}

TEST(MicroBatch, WhatNeedsTheWholeBatchAtOnceIsAnError) {
  EXPECT_EQ(Cut(std::string(kHead) + R"(
%4:f32[6, 8] = transpose "u" (%2) {perm=[1, 0]}
%5:f32[6, 8] = softmax "soft" (%4) {causal=false scale=1.0} at net.cc:7
fetch "f" (%5) {name="f"}
)",
                Devices(1, 1))
                .status()
                .message(),
            "softmax 'soft' needs the whole batch of 'u' (f32[6, 8]), of which micro_batches = 4 "
            "gives it one part at a time; set micro_batches to 1, or compute it from each part "
            "alone (net.cc:7)");
}

TEST(MicroBatch, AFetchOfACutTensorActsAsOften) {
  auto graph = Cut(std::string(kHead) + "fetch \"f\" (%2) {name=\"y\"}", Devices(1, 1));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(OpNamed(*graph, "f").acts_per_step, 4);
  EXPECT_EQ(OpNamed(*graph, "f").input_micro_batch_sbp, std::vector<Sbp>{sbp::S(0)});
}

// A mask is drawn in parts; what is also needed whole is computed twice, unless it is random.
TEST(MicroBatch, ConstantsAreMadeInParts) {
  auto graph = Cut(std::string(kHead) + R"(
%4:f32[8, 6] = random_uniform "mask" () {dtype=f32 shape=[8, 6] low=0.0 high=1.0}
%5:f32[8, 6] = mul "masked" (%2, %4)
%6:f32[8, 6] = constant "ones" () {dtype=f32 shape=[8, 6] value=1.0}
%7:f32[8, 6] = add "plus" (%5, %6)
%8:f32[] = reduce_sum "count" (%6) {axes=[0, 1] keep_dims=false}
fetch "f" (%7) {name="f"}
fetch "g" (%8) {name="g"}
)",
                   Devices(1, 1));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(MicroBatchText(*graph), R"(
x x4 ()->(S(0))
w
y x4 (S(0), B)->(S(0))
loss x4 (S(0))->(P)
mask x4 ()->(S(0))
masked x4 (S(0), S(0))->(S(0))
ones
count
g
ones.pieces x4 ()->(S(0))
plus x4 (S(0), S(0))->(S(0))
f x4 (S(0))->()
)");
  EXPECT_EQ(Cut(std::string(kHead) + R"(
%4:f32[8, 6] = random_uniform "mask" () {dtype=f32 shape=[8, 6] low=0.0 high=1.0} at net.cc:5
%5:f32[8, 6] = mul "masked" (%2, %4)
fetch "f" (%5) {name="f"}
fetch "g" (%4) {name="g"}
)",
                Devices(1, 1))
                .status()
                .message(),
            "random_uniform 'mask' is read whole and in micro_batches = 4 parts; record it once "
            "for each use (net.cc:5)");
}

// Two samples in four micro-batches on two devices: rows of a merged axis would cross devices. On
// four they would cross them whatever is cut first, so each device reshapes all of a micro-batch.
TEST(MicroBatch, ReshapesMustBearBothSplits) {
  const std::string text = R"(
%0:f32[8, 3, 5] = read "x" () {batch=8 types="f32[8, 3, 5]"} at net.cc:1
%1:f32[24, 5] = reshape "rows" (%0) {shape=[24, 5]} at net.cc:2
%2:f32[] = reduce_mean "loss" (%1) {axes=[0, 1] keep_dims=false} at net.cc:3
fetch "f" (%2) {name="f"}
@minimize loss=%2 optimizer="sgd_update" micro_batches=4
)";
  for (int devices : {2, 4}) {
    auto graph = Cut(text, Devices(1, devices));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(OpNamed(*graph, "rows").output_micro_batch_sbp, std::vector<Sbp>{sbp::S(0)});
  }
}

TEST(MicroBatch, ThereIsABatch) {
  EXPECT_EQ(Cut(R"(
%0:f32[8, 6] = random_uniform "x" () {dtype=f32 shape=[8, 6] low=0.0 high=1.0}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]}
%2:f32[8, 6] = matmul "y" (%0, %1)
%3:f32[] = reduce_mean "loss" (%2) {axes=[0, 1] keep_dims=false}
fetch "f" (%3) {name="f"}
@minimize loss=%3 optimizer="sgd_update" micro_batches=4 at net.cc:4
)",
                Devices(1, 1))
                .status()
                .message(),
            "minimize asks for micro_batches = 4, but nothing that leads to its loss has a batch "
            "to be cut: the job reads no dataset and no input but scalars; set micro_batches to 1, "
            "or read the data (net.cc:4)");
}

TEST(MicroBatch, AStepHasOneNumber) {
  EXPECT_EQ(Cut(std::string(kHead) +
                    "@minimize loss=%3 optimizer=\"sgd_update\" micro_batches=2 at net.cc:9",
                Devices(1, 1))
                .status()
                .message(),
            "minimize asks for micro_batches = 2, but another of the same job for 4; a step has "
            "one number (net.cc:9)");
}

}  // namespace
}  // namespace braid::compiler
