#include "compiler/logical/infer_placement.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/compiler/logical_passes.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {
namespace {

absl::StatusOr<LogicalGraph> Place(const std::string& text, const Placement& devices,
                                   const VariableLayouts& fixed = {}) {
  BRAID_ASSIGN_OR_RETURN(LogicalGraph graph, LogicalGraph::Parse(text, &Registry()));
  return InferPlacement(std::move(graph), devices, devices.Slice(0, 1), fixed);
}

std::string PlaceOf(const LogicalGraph& graph, const std::string& name) {
  return OpNamed(graph, name).placement->ToString();
}

constexpr char kStage0[] = "cpu[2]{0.0 0.1}", kStage1[] = "cpu[2]{1.0 1.1}";
constexpr char kAll[] = "cpu[4]{0.0 0.1 1.0 1.1}";

TEST(InferPlacement, AllDevicesUnlessSaid) {
  auto graph = Place(ToText({}), Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const Op& op : graph->ops()) {
    EXPECT_EQ(op.placement->ToString(), op.type == "fetch" ? "cpu[1]{0.0}" : kAll) << op.name;
  }
}

TEST(InferPlacement, StagesOfAPipeline) {
  auto graph = Place(
      ToText({.stage1 = std::string(" on=") + kStage0, .stage2 = std::string(" on=") + kStage1}),
      Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const char* name : {"data", "fc1.weight", "fc1", "relu", "d_fc1", "d_fc1.weight",
                           "d_fc1.bias", "lr", "fc1.weight.update", "fc1.bias.update"}) {
    EXPECT_EQ(PlaceOf(*graph, name), kStage0) << name;
  }
  for (const char* name : {"fc2.weight", "fc2", "entropy", "mean", "one", "d_entropy", "d_fc2",
                           "d_relu", "d_fc2.weight", "fc2.weight.update"}) {
    EXPECT_EQ(PlaceOf(*graph, name), kStage1) << name;
  }
  EXPECT_EQ(PlaceOf(*graph, "loss"), "cpu[1]{0.0}");
}

constexpr char kServed[] = R"(
%0:f32[8, 6] = input "x" () {dtype=f32 shape=[8, 6]}
%1:f32[6, 6] = variable "w" () {dtype=f32 shape=[6, 6]} on=cpu[1]{1.1}
%2:f32[6, 6] = variable "w.momentum" () {dtype=f32 shape=[6, 6]}
%3:f32[8, 6] = matmul "y" (%0, %1)
%4:f32[6, 6] = tensordot "dw" (%0, %3) fwd="y"
%5:f32[] = constant "lr" () {dtype=f32 shape=[] value=0.5}
momentum_update "w.update" (%1, %4, %2, %5) {momentum=0.9 nesterov=false weight_decay=0.0}
fetch "f" (%3) {name="y"}
)";

// Servers hold variables; they do not compute.
TEST(InferPlacement, AParameterServerUpdates) {
  auto graph = Place(kServed, Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(PlaceOf(*graph, "x"), "cpu[1]{0.0}");
  EXPECT_EQ(PlaceOf(*graph, "y"), kAll);
  EXPECT_EQ(PlaceOf(*graph, "dw"), kAll);
  for (const char* name : {"w", "w.momentum", "w.update"}) {
    EXPECT_EQ(PlaceOf(*graph, name), "cpu[1]{1.1}") << name;
  }
}

constexpr char kTwoVariables[] = R"(
%0:f32[6, 6] = variable "a" () {dtype=f32 shape=[6, 6]}
%1:f32[6, 6] = variable "b" () {dtype=f32 shape=[6, 6]}
%2:f32[6, 6] = add "sum" (%0, %1)
fetch "f" (%2) {name="sum"}
)";

// A job takes over where earlier jobs' variables lie: flat ones stay flat beside others.
TEST(InferPlacement, FixedVariablesKeepTheirHierarchies) {
  const Placement flat = Devices(2, 2);
  const auto square = flat.WithHierarchy({2, 2});
  ASSERT_TRUE(square.ok()) << square.status();
  const VariableLayout of_a = {*square, {sbp::S(0), sbp::B}}, of_b = {flat, {sbp::S(0)}};
  auto graph = Place(kTwoVariables, flat, {{"a", of_a}, {"b", of_b}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(PlaceOf(*graph, "a"), square->ToString());
  EXPECT_EQ(PlaceOf(*graph, "b"), flat.ToString());
  graph = Place(kTwoVariables, flat, {{"a", of_a}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(PlaceOf(*graph, "b"), square->ToString());
  EXPECT_EQ(PlaceOf(*graph, "sum"), square->ToString());
}

TEST(InferPlacement, AHintOfTwoDimensionsMakesAHierarchy) {
  auto graph = Place(ToText({.fc1_hint = "[B, S(1)]"}), Devices(2, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(PlaceOf(*graph, "fc1.weight"), "cpu[2, 2]{0.0 0.1 1.0 1.1}");
  EXPECT_EQ(PlaceOf(*graph, "d_entropy"), "cpu[2, 2]{0.0 0.1 1.0 1.1}");
  EXPECT_EQ(PlaceOf(*graph, "loss"), "cpu[1]{0.0}");
}

TEST(InferPlacement, AHintThatDoesNotFitNamesTheCounts) {
  const Placement uneven("cpu", {{0, 0}, {0, 1}, {1, 0}});
  EXPECT_EQ(Place(ToText({.fc1_hint = "[B, S(1)]"}), uneven).status().message(),
            "variable 'fc1.weight': the hint [B, S(1)] has 2 dimensions, but its nodes have "
            "unequal numbers of devices: node 0 has 2, node 1 has 1; use a hint of one dimension "
            "or place the op on equal nodes (mlp.cc:2)");
  EXPECT_EQ(Place(ToText({.fc1_hint = "[B, B, S(1)]"}), Devices(2, 2)).status().message(),
            "variable 'fc1.weight': the hint [B, B, S(1)] has 3 dimensions, but its placement's "
            "hierarchy is [4]; give the op a Placement with 3 dimensions (mlp.cc:2)");
}

TEST(InferPlacement, VariablesStayWhereAnEarlierJobPutThem) {
  const Placement square = *Devices(2, 2).WithHierarchy({2, 2});
  auto graph = Place(ToText({}), Devices(2, 2),
                     {{"fc1.weight", {square, NdSbp{sbp::B, sbp::S(1)}}},
                      {"fc2.weight", {Devices(1, 1), sbp::B}}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(PlaceOf(*graph, "fc1.weight"), square.ToString());
  EXPECT_EQ(PlaceOf(*graph, "fc1"), square.ToString());
  EXPECT_EQ(PlaceOf(*graph, "fc2.weight"), "cpu[1]{0.0}");
  EXPECT_EQ(PlaceOf(*graph, "fc2"), square.ToString());
}

}  // namespace
}  // namespace braid::compiler
