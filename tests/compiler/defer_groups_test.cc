#include "compiler/physical/defer_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compiler/group_graph.h"

namespace braid::compiler {
namespace {

std::vector<std::string> Deferrable(const PhysicalGraph& before) {
  const PhysicalGraph graph = DeferGroups(before);
  std::vector<std::string> names;
  for (const TaskGroup& group : graph.groups()) {
    if (group.is_deferrable) names.push_back(group.name);
  }
  return names;
}

// A variable, forward and backward, gradients that travel, and the update that closes the loop.
struct Training : GroupGraph {
  GroupId variable = Group("variable", {.work = VariableOwner{}});
  GroupId forward = Group("forward");
  GroupId backward = Group("backward");
  GroupId gradients = Group("gradients", {.stream = StreamKind::kTransfer, .work = Collective{}});
  GroupId norm = Group("norm");
  GroupId update = Group("update");
  Training() {
    Edge("weights", variable, {forward, backward, update}, {.variable = "w"});
    Edge("activations", forward, {backward});
    Edge("d", backward, {gradients});
    Edge("sum", gradients, {norm, update});
    Edge("scale", norm, {update});
    Edge("done", update, {variable}, {.floats = 0, .tokens = 1});
  }
};

TEST(DeferGroups, UpdatesAndWhatOnlyTheyNeed) {
  Training job;
  EXPECT_EQ(Deferrable(job.graph), (std::vector<std::string>{"norm", "update"}));
}

TEST(DeferGroups, NotWhatSomethingInTheStepWaitsFor) {
  Training job;
  const GroupId after = job.Group("after", {.placement = Cpu(1, 1)});
  const GroupId sent = job.Group(
      "sent", {.placement = Cpu(1, 1), .stream = StreamKind::kTransfer, .work = Exchange{}});
  job.Edge("value", job.update, {sent});
  job.Edge("value at its place", sent, {after});
  EXPECT_EQ(Deferrable(job.graph), (std::vector<std::string>{"after"}));
}

TEST(DeferGroups, EdgesOfMemoryCount) {
  Training job;
  job.graph.AddControlEdge(job.update, job.Group("writes there", {.stream = StreamKind::kInput}),
                           0);
  EXPECT_EQ(Deferrable(job.graph), std::vector<std::string>{});
}

TEST(DeferGroups, NotWhatActsForEveryMicroBatch) {
  GroupGraph job;
  const GroupId forward = job.Group("forward", {.acts_per_step = 4});
  job.Edge("prediction", forward, {job.Group("metric", {.acts_per_step = 4})});
  job.Edge("sum", forward, {job.Group("report")}, {.period = 4});
  EXPECT_EQ(Deferrable(job.graph), std::vector<std::string>{"report"});
}

}  // namespace
}  // namespace braid::compiler
