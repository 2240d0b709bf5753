#include "compiler/cost.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/compiler/logical_passes.h"
#include "tests/compiler/training_text.h"

namespace braid::compiler {
namespace {

using sbp::B;
using sbp::P;
using sbp::S;

TEST(Cost, WorkIsSharedWhereSomethingIsSplit) {
  EXPECT_EQ(WorkingParts({S(0), B}, {S(0)}, {4}), 4);
  EXPECT_EQ(WorkingParts({S(1), S(0)}, {P}, {4}), 4);
  EXPECT_EQ(WorkingParts({P, B}, {P}, {4}), 1);
  EXPECT_EQ(WorkingParts({NdSbp{S(0), B}, NdSbp{B, B}}, {NdSbp{S(0), B}}, {2, 4}), 2);
  EXPECT_EQ(WorkingParts({NdSbp{S(0), B}, NdSbp{B, S(1)}}, {NdSbp{S(0), S(1)}}, {2, 4}), 8);
}

TEST(Cost, AStepOfDataParallelTraining) {
  auto graph = RunPasses(ToText({}), Devices(1, 4));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const OpWork work = WorkOf(*graph, OpNamed(*graph, "fc1"));
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 16 * 784 * 512);
  EXPECT_DOUBLE_EQ(work.bytes, 4.0 * (16 * 784 + 784 * 512 + 16 * 512));

  BoxingPlanner planner;
  const StepEstimate estimate = EstimateStep(*graph, planner, {});
  const int64_t variables = 4 * (784 * 512 + 512 + 512 * 10);
  EXPECT_EQ(estimate.variable_bytes.at({0, 3}), variables);
  EXPECT_GT(estimate.flops.at({0, 0}), 3 * work.flops / 2);
  EXPECT_EQ(estimate.flops.at({0, 1}), estimate.flops.at({0, 3}));
  int64_t gradients = 0, loss = 0;
  std::set<std::string> sums;  // of gradients, and for which op
  for (const BoxingEstimate& boxing : estimate.boxing) {
    if (boxing.rules == "all_reduce") {
      sums.insert(absl::StrCat(graph->producer(boxing.tensor).name, " for ",
                               graph->op(boxing.consumer).name));
    }
    (boxing.edge.type.shape.rank() > 0 ? gradients : loss) += boxing.total_bytes;
  }
  EXPECT_EQ(gradients, 2 * 3 * variables);
  EXPECT_LE(loss, 32);
  EXPECT_EQ(estimate.boxing_bytes, gradients + loss);
  EXPECT_TRUE(sums.contains("d_fc1.weight for fc1.weight.update")) << absl::StrJoin(sums, ", ");
}

// One transfer per act for what is cut, one a step for what is accumulated.
TEST(Cost, MicroBatches) {
  auto graph = RunPasses(
      ToText({.micro_batches = 4, .stage1 = " on=cpu[1]{0.0}", .stage2 = " on=cpu[1]{0.1}"}),
      Devices(1, 2));
  ASSERT_TRUE(graph.ok()) << graph.status();
  BoxingPlanner planner;
  const StepEstimate estimate = EstimateStep(*graph, planner, {});
  const Op& relu = OpNamed(*graph, "relu");
  bool found = false;
  for (const BoxingEstimate& boxing : estimate.boxing) {
    if (boxing.tensor != relu.outputs[0]) continue;
    found = true;
    EXPECT_EQ(boxing.edge.micro_batch_sbp, S(0));
    EXPECT_EQ(boxing.edge.micro_batches, 4);
    EXPECT_EQ(boxing.total_bytes, 4 * 64 * 512);
    EXPECT_EQ(boxing.messages % 4, 0);
  }
  EXPECT_TRUE(found);
  // Weights are read by every act, the batch once.
  const OpWork work = WorkOf(*graph, OpNamed(*graph, "fc1"));
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 64 * 784 * 512);
  EXPECT_DOUBLE_EQ(work.bytes, 4.0 * (64 * 784 + 4 * 784 * 512 + 64 * 512));
  EXPECT_EQ(MicroBatchLayoutOf(*graph, relu.outputs[0]).micro_batches, 4);
  EXPECT_EQ(MicroBatchLayoutOf(*graph, OpNamed(*graph, "mean.accumulate").outputs[0]).micro_batches,
            1);
}

}  // namespace
}  // namespace braid::compiler
