#include "compiler/physical/act_phases.h"

#include <gtest/gtest.h>

#include "tests/compiler/group_graph.h"

namespace braid::compiler {
namespace {

// Labels are counted, and the gradient of every micro-batch waits for their number; the forward
// pass and the loss do not, and so stand with what comes after.
TEST(ActPhases, WhatIsCountedGoesAhead) {
  GroupGraph g;
  const int m = 4;
  const GroupId labels = g.Group("labels", {.acts_per_step = m});
  const GroupId count = g.Group("count", {.acts_per_step = m});
  const GroupId divisor = g.Group("divisor");
  const GroupId forward = g.Group("forward", {.acts_per_step = m});
  const GroupId loss = g.Group("loss"), report = g.Group("report");
  const GroupId fetch = g.Group("fetch", {.acts_per_step = m});
  const GroupId back = g.Group("back", {.acts_per_step = m});
  const GroupId weight = g.Group("weight"), update = g.Group("update");
  g.Edge("labels", labels, {count, forward});
  g.Edge("addends", count, {divisor}, {.period = m});
  g.Edge("divisor", divisor, {back}, {.use_period = m});
  g.Edge("weight", weight, {forward}, {.use_period = m});
  g.Edge("stash", forward, {back, fetch});
  g.Edge("losses", forward, {loss}, {.period = m});
  g.Edge("mean", loss, {report});
  g.Edge("gradient", back, {update}, {.period = m});
  const auto phases = FindActPhases(g.graph);
  ASSERT_TRUE(phases.ok()) << phases.status();
  EXPECT_EQ(phases->last, 1);
  const auto of = [&](GroupId id) { return phases->of[id]; };
  EXPECT_EQ(of(labels), 0);
  EXPECT_EQ(of(count), 0);
  for (GroupId id : {divisor, weight, forward, fetch, back}) EXPECT_EQ(of(id), 1) << id;
  for (GroupId id : {loss, report, update}) EXPECT_EQ(of(id), 2) << id;
}

// The micro-batches of most jobs wait for nothing that all of them make.
TEST(ActPhases, MostJobsHaveOne) {
  GroupGraph g;
  const GroupId forward = g.Group("forward", {.acts_per_step = 4});
  const GroupId back = g.Group("back", {.acts_per_step = 4}), update = g.Group("update");
  g.Edge("stash", forward, {back});
  g.Edge("gradient", back, {update}, {.period = 4});
  const auto phases = FindActPhases(g.graph);
  ASSERT_TRUE(phases.ok()) << phases.status();
  EXPECT_EQ(phases->last, 0);
  EXPECT_EQ(phases->of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(FindActPhases(PhysicalGraph())->last, 0);
}

}  // namespace
}  // namespace braid::compiler
