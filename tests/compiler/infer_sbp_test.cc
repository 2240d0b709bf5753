#include "compiler/logical/infer_sbp.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/compiler/logical_passes.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {
namespace {

std::string LayoutOf(const LogicalGraph& graph, const std::string& name) {
  const Op& op = OpNamed(graph, name);
  return "(" + ListText(op.input_sbp) + ")->(" + ListText(op.output_sbp) + ")";
}

std::string Error(const std::string& text, const Placement& devices,
                  const InferSbpOptions& options = {}) {
  return std::string(RunPasses(text, devices, options).status().message());
}

TEST(InferSbp, DataParallelFallsOut) {
  auto graph = RunPasses(ToText({}), Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutText(*graph), R"(
data ()->(S(0), S(0))
fc1.weight ()->(B)
fc1.bias ()->(B)
fc1 (S(0), B)->(S(0))
fc1.add (S(0), B)->(S(0))
relu (S(0))->(S(0))
fc2.weight ()->(B)
fc2 (S(0), B)->(S(0))
max (S(0))->(S(0))
sum_exp (S(0), S(0))->(S(0))
entropy (S(0), S(0), S(0), S(0))->(S(0))
mean (S(0))->(P)
loss (B)->()
one ()->(B)
d_entropy.scale (B)->(B)
d_entropy.reshape (B)->(B)
d_entropy (B)->(B)
d_fc2 (S(0), S(0), S(0), S(0), S(0))->(S(0))
d_relu (S(0), B)->(S(0))
d_fc2.weight (S(0), S(0))->(P)
d_fc1 (S(0), S(0))->(S(0))
d_fc1.bias (S(0))->(P)
d_fc1.weight (S(0), S(0))->(P)
lr ()->(B)
fc1.weight.update (B, B, B)->()
fc1.bias.update (B, B, B)->()
fc2.weight.update (B, B, B)->()
)");
}

std::string MirroredText(int parts) {
  const std::string attrs =
      "{mirrored_dims=-1 mirrored_parts=" + std::to_string(parts) + "} at own.cc:3";
  return R"(
%0:f32[8, 4] = read "x" () {batch=8 types="f32[8, 4]"}
%1:f32[4, 4] = mirror_parts "own" (%0) )" +
         attrs + R"(
%2:f32[4, 4] = variable "w" () {dtype=f32 shape=[4, 4]}
%3:f32[4, 4] = mirror "w.mirror" (%2) )" +
         attrs + R"(
%4:f32[4, 4] = mul "y" (%1, %3)
%5:f32[4, 4] = sum_mirrored "sum" (%4) )" +
         attrs + R"(
fetch "f" (%5) {name="y"}
)";
}

TEST(InferSbp, MirroredValuesLeadInAndOut) {
  auto graph = RunPasses(MirroredText(2), Devices(1, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutText(*graph), R"(
x ()->(S(0))
own (S(0))->(M)
w ()->(B)
w.mirror (B)->(M)
y (M, M)->(M)
sum (M)->(P)
f (B)->()
)");
  EXPECT_EQ(LogicalGraph::Parse(graph->ToString(), &graph->registry())->ToString(),
            graph->ToString());
  const std::string error = Error(MirroredText(2), Devices(1, 4));
  EXPECT_NE(error.find("mirror_parts 'own'"), std::string::npos) << error;
  EXPECT_NE(error.find("2 values"), std::string::npos) << error;
  EXPECT_NE(error.find("own.cc:3"), std::string::npos) << error;
}

TEST(InferSbp, OneDeviceNeedsNoBoxing) {
  auto graph = RunPasses(ToText({.fc1_hint = "S(1)", .fc2_hint = "S(0)"}), Devices(1, 1));
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const Op& op : graph->ops()) {
    for (const NdSbp& sbp : op.input_sbp) EXPECT_EQ(sbp, NdSbp(sbp::B)) << op.name;
    for (const NdSbp& sbp : op.output_sbp) EXPECT_EQ(sbp, NdSbp(sbp::B)) << op.name;
  }
}

TEST(InferSbp, ModelParallel) {
  auto graph = RunPasses(ToText({.fc1_hint = "S(1)", .fc2_hint = "S(0)"}), Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutText(*graph), R"(
data ()->(S(0), S(0))
fc1.weight ()->(S(1))
fc1.bias ()->(B)
fc1 (B, S(1))->(S(1))
fc1.add (S(1), S(0))->(S(1))
relu (S(1))->(S(1))
fc2.weight ()->(S(0))
fc2 (S(1), S(0))->(P)
max (S(0))->(S(0))
sum_exp (S(0), S(0))->(S(0))
entropy (S(0), S(0), S(0), S(0))->(S(0))
mean (S(0))->(P)
loss (B)->()
one ()->(B)
d_entropy.scale (B)->(B)
d_entropy.reshape (B)->(B)
d_entropy (B)->(B)
d_fc2 (S(0), S(0), S(0), S(0), S(0))->(S(0))
d_relu (B, S(0))->(S(1))
d_fc2.weight (S(1), B)->(S(0))
d_fc1 (S(1), S(1))->(S(1))
d_fc1.bias (S(1))->(S(0))
d_fc1.weight (B, S(1))->(S(1))
lr ()->(B)
fc1.weight.update (S(1), S(1), B)->()
fc1.bias.update (B, B, B)->()
fc2.weight.update (S(0), S(0), B)->()
)");
}

TEST(InferSbp, Hybrid) {
  auto graph = RunPasses(ToText({.fc1_hint = "[B, S(1)]", .fc2_hint = "[B, S(0)]"}), Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(OpNamed(*graph, "relu").placement->hierarchy(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(LayoutOf(*graph, "fc1"), "([S(0), B], [B, S(1)])->([S(0), S(1)])");
  EXPECT_EQ(LayoutOf(*graph, "fc1.add"), "([S(0), S(1)], [B, S(0)])->([S(0), S(1)])");
  EXPECT_EQ(LayoutOf(*graph, "fc2"), "([S(0), S(1)], [B, S(0)])->([S(0), P])");
  EXPECT_EQ(LayoutOf(*graph, "mean"), "([S(0), S(0)])->([P, P])");
  EXPECT_EQ(LayoutOf(*graph, "d_fc1.weight"), "([S(0), B], [S(0), S(1)])->([P, S(1)])");
  EXPECT_EQ(LayoutOf(*graph, "fc1.weight.update"), "([B, S(1)], [B, S(1)], [B, B])->()");
}

TEST(InferSbp, AOneDimensionalHintMeansFlat) {
  auto graph = RunPasses(ToText({.fc1_hint = "[B, S(1)]", .fc2_hint = "S(0)"}), Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "fc2.weight"), "()->([S(0), S(0)])");
}

TEST(InferSbp, Pipeline) {
  auto graph = RunPasses(
      ToText(
          {.micro_batches = 4, .stage1 = " on=cpu[2]{0.0 0.1}", .stage2 = " on=cpu[2]{1.0 1.1}"}),
      Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "fc1"), "(S(0), B)->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "fc2"), "(S(0), B)->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "entropy"), "(S(0), S(0), S(0), S(0))->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "d_fc1"), "(S(0), S(0))->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "d_fc2.weight.accumulate"), "(P)->(P)");
  EXPECT_EQ(OpNamed(*graph, "entropy").placement->ToString(), "cpu[2]{1.0 1.1}");
  EXPECT_EQ(OpNamed(*graph, "d_fc1").placement->ToString(), "cpu[2]{0.0 0.1}");
}

TEST(InferSbp, AHintThatCannotHoldListsWhatCan) {
  const std::string text = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]}
%1:f32[8, 6] = softmax "soft" (%0) {causal=false scale=1.0} hint=(S(1)) at net.cc:7
fetch "f" (%1) {name="y"}
)";
  EXPECT_EQ(Error(text, Devices(1, 2)),
            "softmax 'soft': the hint S(1) of output 0 cannot hold; legal on each dimension: "
            "(B)->(B), (S(0))->(S(0)) (net.cc:7)");
  EXPECT_EQ(Error(text, Devices(1, 1)), Error(text, Devices(1, 2)));
  EXPECT_EQ(Error(ToText({.fc1_hint = "S(2)"}), Devices(1, 2)),
            "variable 'fc1.weight': the hint S(2) cannot hold for f32[784, 512]; legal on each "
            "dimension: B, S(0), S(1) (mlp.cc:2)");
  EXPECT_EQ(Error(ToText({.fc1_hint = "P"}), Devices(1, 2)),
            "variable 'fc1.weight': the hint P cannot hold for f32[784, 512]; legal on each "
            "dimension: B, S(0), S(1) (mlp.cc:2)");
}

TEST(InferSbp, WhatAnEarlierJobFixedHolds) {
  InferSbpOptions options;
  options.fixed["fc1.weight"] = {Devices(1, 2), sbp::S(1)};
  auto graph = RunPasses(ToText({}), Devices(1, 2), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "fc1"), "(B, S(1))->(S(1))");
  EXPECT_EQ(LayoutOf(*graph, "fc1.weight.update"), "(S(1), S(1), B)->()");
  EXPECT_EQ(Error(ToText({.fc1_hint = "S(0)"}), Devices(1, 2), options),
            "variable 'fc1.weight': the hint S(0) differs from S(1), which an earlier job fixed; "
            "leave the hint out or make them equal (mlp.cc:2)");
}

// The mask is made where and as it is used; no transfer.
TEST(InferSbp, SourcesFollowTheirFirstConsumer) {
  auto graph = RunPasses(R"(
%0:f32[8, 6] = read "x" () {batch=8 types="f32[8, 6]"}
%1:f32[8, 6] = random_uniform "mask" () {dtype=f32 shape=[8, 6] low=0.0 high=1.0}
%2:f32[8, 6] = mul "masked" (%0, %1)
%3:f32[6] = constant "unused.split" () {dtype=f32 shape=[6] value=1.0}
%4:f32[6] = exp "whole" (%3)
fetch "f" (%2) {name="y"}
fetch "g" (%4) {name="z"}
)",
                         Devices(1, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "mask"), "()->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "masked"), "(S(0), S(0))->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "whole"), "(B)->(B)");
}

TEST(InferSbp, SplitEmbeddingTables) {
  const auto layout = [](const std::string& hint) {
    auto graph = RunPasses(R"(
%0:i32[512] = read "ids" () {batch=512 types="i32[512]"}
%1:f32[1000, 16] = variable "table" () {dtype=f32 shape=[1000, 16]} hint=()" +
                               hint + R"()
%2:f32[512, 16] = gather "rows" (%1, %0) {axis=0}
%3:f32[512, 16] = relu "relu" (%2)
fetch "f" (%3) {name="y"}
)",
                           Devices(1, 4));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return LayoutOf(*graph, "rows") + " " + LayoutOf(*graph, "relu");
  };
  EXPECT_EQ(layout("-"), "(B, S(0))->(S(0)) (S(0))->(S(0))");
  EXPECT_EQ(layout("S(0)"), "(S(0), B)->(P) (S(0))->(S(0))");
  EXPECT_EQ(layout("S(1)"), "(S(1), B)->(S(1)) (S(1))->(S(1))");
}

// A feed comes from the master in parts, not as copies.
TEST(InferSbp, FeedsAreDistributed) {
  auto graph = RunPasses(R"(
%0:f32[64, 784] = input "x" () {dtype=f32 shape=[64, 784]}
%1:f32[784, 512] = variable "w" () {dtype=f32 shape=[784, 512]}
%2:f32[64, 512] = matmul "y" (%0, %1)
fetch "f" (%2) {name="y"}
)",
                         Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "y"), "(S(0), B)->(S(0))");
  EXPECT_EQ(LayoutOf(*graph, "f"), "(B)->()");
}

// add(P, B) resolves the sum: a zero-cost P would only put it off.
TEST(InferSbp, AddendsAreSummedBeforeABias) {
  auto graph = RunPasses(R"(
%0:f32[64, 512] = read "x" () {batch=64 types="f32[64, 512]"}
%1:f32[512, 32] = variable "w" () {dtype=f32 shape=[512, 32]} hint=(S(0))
%2:f32[64, 32] = matmul "y" (%0, %1)
%3:f32[32] = variable "b" () {dtype=f32 shape=[32]}
%4:f32[64, 32] = add "z" (%2, %3)
%5:f32[64, 32] = scale "scaled" (%2) {factor=2.0}
fetch "f" (%4) {name="y"}
fetch "g" (%5) {name="z"}
)",
                         Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "y"), "(S(1), S(0))->(P)");
  EXPECT_EQ(LayoutOf(*graph, "z"), "(S(0), B)->(S(0))");
}

TEST(InferSbp, DrawsWhateverIsLegal) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    InferSbpOptions options;
    options.layout_seed = seed;
    auto graph = RunPasses(ToText({.fc1_hint = "S(1)"}), Devices(1, 2), options);
    ASSERT_TRUE(graph.ok()) << graph.status();
    auto again = RunPasses(ToText({.fc1_hint = "S(1)"}), Devices(1, 2), options);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(graph->ToString(), again->ToString());
    // Hints and updates in place are no matter of choice.
    EXPECT_EQ(LayoutOf(*graph, "fc1.weight"), "()->(S(1))");
    EXPECT_EQ(LayoutOf(*graph, "fc1.weight.update"), "(S(1), S(1), B)->()");
    seen.insert(LayoutOf(*graph, "relu"));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"(B)->(B)", "(S(0))->(S(0))", "(S(1))->(S(1))"}));
}

TEST(InferSbp, ExplainsItsChoices) {
  std::map<std::string, std::string> lines;
  InferSbpOptions options;
  options.explanations = &lines;
  auto graph = RunPasses(ToText({}), Devices(1, 4), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(LayoutOf(*graph, "fc1"), "(S(0), B)->(S(0))");
  const std::string& line = lines["fc1"];
  EXPECT_NE(line.find(" us; or (B, B)->(B), "), std::string::npos) << line;
  EXPECT_NE(line.find(" us; or (S(1), S(0))->(P), "), std::string::npos) << line;
  EXPECT_EQ(line.find("(S(0), B)->(S(0))"), std::string::npos) << line;
  // The same choices as without explanations.
  auto silent = RunPasses(ToText({}), Devices(1, 4));
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ(graph->ToString(), silent->ToString());
}

}  // namespace
}  // namespace braid::compiler
