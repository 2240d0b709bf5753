#include "compiler/physical/order_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/physical/assign_slots.h"
#include "compiler/verify.h"
#include "graph/op_registry.h"
#include "tests/compiler/group_graph.h"

namespace braid::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OrderCollectivesTest : public ::testing::Test {
 protected:
  GroupId Sum(const std::string& name, int acts = 1, Placement placement = Cpu(0, 2)) {
    return g_.Group(name, {.acts_per_step = acts,
                           .placement = placement,
                           .stream = StreamKind::kCollective,
                           .work = Collective{}});
  }
  GroupId Work(const std::string& name, int acts = 1) {
    return g_.Group(name, {.acts_per_step = acts, .placement = Cpu(0, 2)});
  }
  // "a->b" or "a->b later", and "/n" if they divide a step into n pieces.
  std::vector<std::string> Edges() {
    auto ordered = OrderCollectives(g_.graph);
    EXPECT_TRUE(ordered.ok()) << ordered.status();
    std::vector<std::string> edges;
    for (const Register& reg : ordered->registers()) {
      if (!reg.is_control()) continue;
      const int pieces = ordered->group(reg.producer).acts_per_step / reg.period;
      edges.push_back(absl::StrCat(reg.name, reg.initial_tokens > 0 ? " later" : "",
                                   pieces > 1 ? absl::StrCat("/", pieces) : ""));
    }
    return edges;
  }

  GroupGraph g_;
};

TEST_F(OrderCollectivesTest, OneNeedsNoOrder) {
  Sum("a");
  EXPECT_THAT(Edges(), ElementsAre());
}

TEST_F(OrderCollectivesTest, GoesRoundInTheOrderOfTheData) {
  const GroupId a = Sum("a"), b = Sum("b"), work = Work("work");
  Sum("c");
  g_.Edge("x", b, {work});
  g_.Edge("y", work, {a});
  EXPECT_THAT(Edges(), ElementsAre("b->a", "a->c", "c->b later"));
}

TEST_F(OrderCollectivesTest, DevicesMayNeedNone) {
  g_.graph.kinds = NodeKinds({{.name = "card",
                               .is_host = false,
                               .does_collectives = true,
                               .collects_in_any_order = true}});
  Sum("a");
  Sum("b", 1, Cpu(0, 3));
  EXPECT_THAT(Edges(), ElementsAre());
}

// Those of two lists of devices have nothing to do with each other.
TEST_F(OrderCollectivesTest, EveryListOfDevicesHasItsOwn) {
  Sum("a");
  Sum("b", 1, Cpu(2, 2));
  Sum("c");
  Sum("d", 1, Cpu(2, 2));
  EXPECT_THAT(Edges(), ElementsAre("a->c", "c->a later", "b->d", "d->b later"));
}

// A micro-batch's come before the next one's; those of the whole step before all of them, if they
// do not wait for what all of them have made.
TEST_F(OrderCollectivesTest, MicroBatchesTakeTurns) {
  const GroupId gradient = Sum("gradient"), forward = Sum("forward", 4), back = Sum("back", 4);
  const GroupId weight = Sum("weight");
  g_.Edge("w", weight, {forward}, {.use_period = 4});
  g_.Edge("x", forward, {back});
  g_.Edge("y", back, {gradient}, {.period = 4});
  EXPECT_THAT(Edges(), ElementsAre("weight->forward", "forward->back/4", "back->gradient",
                                   "back->forward later/4", "gradient->weight later"));
}

// The same if what waits for all of them is no collective. What nobody waits for goes with the
// last.
TEST_F(OrderCollectivesTest, MicroBatchesThatWaitForAllOthersComeAfterThem) {
  const GroupId a = Sum("a", 4), b = Sum("b", 4), mean = Work("mean"), c = Sum("c", 4);
  g_.Edge("x", a, {mean}, {.period = 4});
  g_.Edge("y", mean, {c}, {.use_period = 4});
  EXPECT_EQ(g_.graph.group(b).acts_per_step, 4);
  EXPECT_THAT(Edges(), ElementsAre("a->b", "b->c/4", "c->b later/4", "c->a later"));
}

// All micro-batches have gone forward before one goes back.
TEST_F(OrderCollectivesTest, AMeanOverMicroBatchesStandsBetween) {
  const GroupId forward = Sum("forward", 4), mean = Sum("mean"), back = Sum("back", 4);
  g_.Edge("x", forward, {mean}, {.slots = 1, .period = 4});
  g_.Edge("y", mean, {back}, {.use_period = 4});
  EXPECT_THAT(Edges(), ElementsAre("forward->mean", "mean->back", "back->forward later"));
}

TEST_F(OrderCollectivesTest, ListsThatShareADeviceAreRefused) {
  Sum("a");
  Sum("b", 1, Cpu(1, 2));
  EXPECT_THAT(std::string(OrderCollectives(g_.graph).status().message()),
              HasSubstr("one of them has to go through the host"));
}

// Every edge that the pass adds is demanded.
TEST_F(OrderCollectivesTest, VerificationDemandsEveryEdge) {
  for (const auto& [name, acts] : {std::pair("forward", 4), {"back", 4}, {"whole", 1}}) {
    const GroupId work = Work("work", acts), sum = Sum(name, acts);
    g_.Edge("in", work, {sum});
    g_.Edge("out", sum, {});
    auto& collective = std::get<Collective>(g_.graph.group(sum).work);
    collective.movement.source = collective.movement.destination = Floats(1024);
  }
  auto ordered = OrderCollectives(g_.graph);
  ASSERT_TRUE(ordered.ok()) << ordered.status();
  const size_t data = g_.graph.registers().size(), all = ordered->registers().size();
  EXPECT_EQ(all - data, 4u);
  const OpRegistry registry;
  for (size_t without = data; without <= all; ++without) {
    PhysicalGraph graph = *ordered;
    std::vector<bool> keep(all, true);
    if (without < all) keep[without] = false;
    graph.Prune(std::vector<bool>(graph.groups().size(), true), keep);
    auto slotted = AssignSlots(graph);
    ASSERT_TRUE(slotted.ok()) << slotted.status();
    int64_t end = 0;  // nothing is shared
    for (const Register& reg : slotted->registers()) {
      slotted->reg(reg.id).offset = end;
      end += reg.slots * reg.slot_bytes;
    }
    const absl::Status status = Verify(*slotted, registry);
    if (without == all) {
      EXPECT_EQ(status, absl::OkStatus());
    } else {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("each device may come to them in an order of its own"))
          << without;
    }
  }
}

}  // namespace
}  // namespace braid::compiler
