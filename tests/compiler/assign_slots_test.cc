#include "compiler/physical/assign_slots.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compiler/group_graph.h"

namespace braid::compiler {
namespace {

std::map<std::string, int> Slots(const PhysicalGraph& graph) {
  std::map<std::string, int> slots;
  for (const Register& reg : graph.registers()) slots[reg.name] = reg.slots;
  return slots;
}

TEST(AssignSlotsTest, ReadersAreOneStepAhead) {
  GroupGraph g;
  const GroupId reader = g.Group("reader", {.stream = StreamKind::kInput});
  const GroupId w = g.Group("w", {.work = VariableOwner{}});
  const GroupId fwd = g.Group("fwd"), loss = g.Group("loss");
  g.Edge("batch", reader, {fwd});
  g.Edge("w", w, {fwd}, {.variable = "w"});
  g.Edge("x", fwd, {loss}, {.slots = 5});
  g.Edge("wait", fwd, {loss}, {.floats = 0});
  g.Edge("credit", loss, {fwd}, {.floats = 0, .slots = 2, .tokens = 2});
  const auto graph = AssignSlots(g.graph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Slots(*graph), (std::map<std::string, int>{
                               {"batch", 2}, {"w", 1}, {"x", 1}, {"wait", 1}, {"credit", 3}}));
}

// Three stages of micro-batches: what the first keeps for the way back must last while the others
// work.
TEST(AssignSlotsTest, StashesGrowWithTheWayToTheLastStage) {
  GroupGraph g;
  constexpr int kStages = 3, kMicroBatches = 8;
  std::vector<GroupId> forward, backward;
  for (int s = 0; s < kStages; ++s) {
    forward.push_back(
        g.Group(absl::StrCat("fwd", s), {.acts_per_step = kMicroBatches, .placement = Cpu(s, 1)}));
    backward.push_back(
        g.Group(absl::StrCat("bwd", s), {.acts_per_step = kMicroBatches, .placement = Cpu(s, 1)}));
    g.Edge(absl::StrCat("stash", s), forward[s], {backward[s]});
  }
  for (int s = 0; s + 1 < kStages; ++s) {
    const GroupId send =
        g.Group(absl::StrCat("send", s),
                {.acts_per_step = kMicroBatches, .placement = Cpu(s + 1, 1), .work = Exchange{}});
    const GroupId back =
        g.Group(absl::StrCat("back", s),
                {.acts_per_step = kMicroBatches, .placement = Cpu(s, 1), .work = Exchange{}});
    g.Edge(absl::StrCat("out", s), forward[s], {send});
    g.Edge(absl::StrCat("in", s + 1), send, {forward[s + 1]});
    g.Edge(absl::StrCat("grad", s + 1), backward[s + 1], {back});
    g.Edge(absl::StrCat("dout", s), back, {backward[s]});
  }
  const auto graph = AssignSlots(g.graph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::map<std::string, int> slots = Slots(*graph);
  // One, and one for each stage that follows.
  EXPECT_EQ(slots.at("stash0"), 3);
  EXPECT_EQ(slots.at("stash1"), 2);
  EXPECT_EQ(slots.at("stash2"), 1);
  for (const char* moved : {"out0", "in1", "out1", "in2", "grad2", "dout1", "grad1", "dout0"}) {
    // A stage's first transfer is one stage further.
    EXPECT_GE(slots.at(moved), 2) << moved;
    EXPECT_LE(slots.at(moved), 3) << moved;
  }
}

// A transfer has two slots so that the next act need not wait for it. If it waits all the same, for
// what the act keeps for the way back, one is enough.
TEST(AssignSlotsTest, ASlotThatNobodyCanUseIsNotTaken) {
  const auto slots = [](bool has_stash) {
    GroupGraph g;
    const auto group = [&g](const char* name, StreamKind stream = StreamKind::kCompute) {
      GroupGraph::GroupOptions options = {.acts_per_step = 4, .stream = stream};
      if (stream == StreamKind::kTransfer) options.work = Collective{};
      return g.Group(name, options);
    };
    const GroupId fwd = group("fwd"), sum = group("sum", StreamKind::kTransfer);
    const GroupId bwd = group("bwd");
    g.graph.group(sum).movement()->source = g.graph.group(sum).movement()->destination =
        Floats(1024);
    g.Edge("x", fwd, {sum});
    g.Edge("y", sum, {bwd});
    if (has_stash) g.Edge("stash", fwd, {bwd});
    const auto graph = AssignSlots(g.graph);
    EXPECT_TRUE(graph.ok()) << graph.status();
    std::map<std::string, int> slots = Slots(*graph);
    slots.erase("stash");
    return slots;
  };
  using Expected = std::map<std::string, int>;
  EXPECT_EQ(slots(true), (Expected{{"x", 1}, {"y", 1}}));
  EXPECT_EQ(slots(false), (Expected{{"x", 2}, {"y", 2}}));
}

// The mean over all micro-batches is needed before the first may go back: all must be kept.
TEST(AssignSlotsTest, AConsumerOnceAStepForcesAllMicroBatches) {
  GroupGraph g;
  const GroupId fwd = g.Group("fwd", {.acts_per_step = 6}), mean = g.Group("mean"),
                bwd = g.Group("bwd", {.acts_per_step = 6});
  g.Edge("stash", fwd, {bwd});
  g.Edge("sum", fwd, {mean}, {.period = 6});
  g.Edge("mean", mean, {bwd}, {.use_period = 6});
  const auto graph = AssignSlots(g.graph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Slots(*graph), (std::map<std::string, int>{{"stash", 6}, {"sum", 1}, {"mean", 1}}));
}

TEST(AssignSlotsTest, ACycleOfDataIsRefused) {
  GroupGraph g;
  const GroupId a = g.Group("a"), b = g.Group("b");
  g.Edge("x", a, {b});
  g.Edge("y", b, {a});
  EXPECT_EQ(AssignSlots(g.graph).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace braid::compiler
