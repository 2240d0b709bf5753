// Plans broken on purpose are refused with a message that says what would mend them.
#include "compiler/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/physical/assign_slots.h"
#include "compiler/physical/bucket_collectives.h"
#include "compiler/physical/chains.h"
#include "compiler/physical/plan_memory.h"
#include "compiler/plan/invariants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compiler/group_graph.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

using ::testing::HasSubstr;

// ---- broken on purpose -------------------------------------------------------------------------

// Two stages, four micro-batches; the loss is averaged over all of them before the way back begins.
GroupGraph Pipeline(int stash_slots) {
  GroupGraph g;
  const Placement first = Cpu(0, 1), second = Cpu(1, 1);
  const GroupId fwd0 = g.Group("fwd0", {.acts_per_step = 4, .placement = first});
  const GroupId send =
      g.Group("send", {.acts_per_step = 4, .placement = second, .work = Exchange{}});
  const GroupId fwd1 = g.Group("fwd1", {.acts_per_step = 4, .placement = second});
  const GroupId mean = g.Group("mean", {.placement = second});
  const GroupId bwd1 = g.Group("bwd1", {.acts_per_step = 4, .placement = second});
  const GroupId back =
      g.Group("back", {.acts_per_step = 4, .placement = first, .work = Exchange{}});
  const GroupId bwd0 = g.Group("bwd0", {.acts_per_step = 4, .placement = first});
  g.Edge("stash", fwd0, {bwd0}, {.slots = stash_slots});
  g.Edge("out0", fwd0, {send}, {.slots = 2});
  g.Edge("in1", send, {fwd1}, {.slots = 2});
  g.Edge("stash1", fwd1, {bwd1}, {.slots = 4});
  g.Edge("sum", fwd1, {mean}, {.period = 4});
  g.Edge("mean", mean, {bwd1}, {.use_period = 4});
  g.Edge("grad1", bwd1, {back}, {.slots = 2});
  g.Edge("grad0", back, {bwd0}, {.slots = 2});
  g.graph.job = "train";
  return g;
}

// Offsets one after the other, as if nothing were shared.
void PlaceApart(PhysicalGraph& graph) {
  graph.LayOutParts();
  int64_t end = 0;
  for (const Register& known : graph.registers()) {
    Register& reg = graph.reg(known.id);
    if (reg.is_control() || !reg.parts[0].variable.empty()) continue;
    reg.offset = end;
    end += reg.slots * reg.slot_bytes;
  }
}

TEST(VerifyTest, OneSlotTooFewInAPipeline) {
  GroupGraph good = Pipeline(4);
  PlaceApart(good.graph);
  EXPECT_EQ(Verify(good.graph, JobRegistry()), absl::OkStatus());

  GroupGraph bad = Pipeline(3);
  PlaceApart(bad.graph);
  const absl::Status status = Verify(bad.graph, JobRegistry());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(),
            "job 'train' would stop within a step; these wait for each other:\n"
            "  'fwd0' (work 'fwd0', train.cc:1) waits until 'bwd0' (work 'bwd0', train.cc:7) gives "
            "back a slot of register 'stash', which has 3\n"
            "  'bwd0' (work 'bwd0', train.cc:7) waits for register 'grad0' of 'back' (train.cc:6)\n"
            "  'back' (train.cc:6) waits for register 'grad1' of 'bwd1' (work 'bwd1', train.cc:5)\n"
            "  'bwd1' (work 'bwd1', train.cc:5) waits for register 'mean' of 'mean' (work 'mean', "
            "train.cc:4)\n"
            "  'mean' (work 'mean', train.cc:4) waits for register 'sum' of 'fwd1' (work 'fwd1', "
            "train.cc:3)\n"
            "  'fwd1' (work 'fwd1', train.cc:3) waits for register 'in1' of 'send' (train.cc:2)\n"
            "  'send' (train.cc:2) waits for register 'out0' of 'fwd0' (work 'fwd0', train.cc:1)\n"
            "4 slots for register 'stash' would free it");
}

TEST(VerifyTest, ACycleThatNoSlotFrees) {
  GroupGraph g;
  const GroupId a = g.Group("a"), b = g.Group("b");
  g.Edge("x", a, {b});
  g.Edge("y", b, {a});
  g.graph.job = "train";
  PlaceApart(g.graph);
  EXPECT_EQ(Verify(g.graph, JobRegistry()).message(),
            "job 'train' would stop within a step; these wait for each other:\n"
            "  'a' (work 'a', train.cc:1) waits for register 'y' of 'b' (work 'b', train.cc:2)\n"
            "  'b' (work 'b', train.cc:2) waits for register 'x' of 'a' (work 'a', train.cc:1)\n"
            "no number of slots would free it; an edge of the cycle must go or have an initial "
            "token");
}

TEST(VerifyTest, SharedBytesWithoutAnEdge) {
  GroupGraph g;
  const GroupId a = g.Group("a"), b = g.Group("b"), c = g.Group("c"), d = g.Group("d");
  const GroupRegisterId x = g.Edge("x", a, {b});
  g.Edge("y", b, {c});
  const GroupRegisterId z = g.Edge("z", c, {d});
  PlaceApart(g.graph);
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());

  // x is read before z is written: by way of y. But the next step's x does not wait for z.
  g.graph.reg(z).offset = g.graph.reg(x).offset;
  EXPECT_EQ(Verify(g.graph, JobRegistry()).message(),
            "registers 'z' and 'x' share bytes 0 to 4096 on node 0 cpu:0, but 'a' (work 'a', "
            "train.cc:1) may write 'x' while 'd' (work 'd', train.cc:4) still uses 'z' of the step "
            "before; a control edge from 'd' to 'a' with one initial token would order them");
  g.graph.AddControlEdge(d, a, 1);
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());
}

// x, y and z lie on the same bytes, one after the other in each of 4 acts; then w does, once a
// step.
TEST(VerifyTest, SharedBytesActByAct) {
  const auto verify = [](const std::vector<std::pair<int, int>>& next_acts, bool has_w, int slots,
                         int64_t y_offset = 0) {
    GroupGraph g;
    std::vector<GroupId> groups;
    for (int i = 0; i < 8; ++i) {
      const int acts = i < 6 ? 4 : 1;
      groups.push_back(
          g.Group(std::string(1, static_cast<char>('a' + i)), {.acts_per_step = acts}));
    }
    std::vector<GroupRegisterId> shared;
    for (int i = 0; i < 6; i += 2) {
      shared.push_back(g.Edge(std::string(1, static_cast<char>('x' + i / 2)), groups[i],
                              {groups[i + 1]}, {.slots = slots}));
      if (i < 4) g.Edge("link", groups[i + 1], {groups[i + 2]}, {.floats = 16, .slots = 4});
    }
    g.Edge("link", groups[5], {groups[6]}, {.floats = 16, .period = 4});
    const GroupRegisterId w = g.Edge("w", groups[6], {groups[7]});
    if (has_w) shared.push_back(w);
    g.graph.AddControlEdge(groups[7], groups[0], 1);
    PlaceApart(g.graph);
    for (GroupRegisterId reg : shared) g.graph.reg(reg).offset = 0;
    g.graph.reg(shared[1]).offset = y_offset;
    for (const auto& [from, to] : next_acts) {
      g.graph.AddControlEdge(groups[from], groups[to], 1);
      g.graph.reg(static_cast<GroupRegisterId>(g.graph.registers().size()) - 1).slots = 5;
    }
    return std::string(Verify(g.graph, JobRegistry()).message());
  };
  const std::pair<int, int> d_to_a = {3, 0}, f_to_c = {5, 2}, f_to_a = {5, 0};
  for (const bool has_w : {false, true}) {
    EXPECT_EQ(verify({d_to_a, f_to_c, f_to_a}, has_w, 1), "");
    EXPECT_EQ(verify({f_to_a, f_to_c}, has_w, 1), "");  // d is before f
    // Slot by slot: what is read before the next act is read before the one after that.
    EXPECT_EQ(verify({f_to_a, f_to_c}, has_w, 2), "");
    EXPECT_EQ(verify({f_to_a, f_to_c}, has_w, 4), "");
    // On another piece's slot.
    EXPECT_THAT(verify({f_to_a, f_to_c}, has_w, 2, 4096), HasSubstr("'x' and 'y' share bytes"));
    EXPECT_THAT(verify({f_to_c, f_to_a}, has_w, 4, 64), HasSubstr("'x' and 'y' share bytes"));
    EXPECT_THAT(verify({}, has_w, 1),
                HasSubstr("'a' (work 'a', train.cc:1) may write 'x' while 'd' (work 'd', "
                          "train.cc:4) still uses 'y' of the act before"));
    // x and y take turns, and so do y and z; but a's next act may come before z is read.
    EXPECT_THAT(verify({d_to_a, f_to_c}, has_w, 1),
                HasSubstr("registers 'z' and 'x' share bytes 0 to 4096 on node 0 cpu:0, but 'a' "
                          "(work 'a', train.cc:1) may write 'x' while 'f' (work 'f', train.cc:6) "
                          "still uses 'z' of the act before; a control edge from 'f' to 'a' with "
                          "one initial token would order them"));
  }
}

TEST(VerifyTest, SharedBytesInOneStep) {
  GroupGraph g;
  const GroupId a = g.Group("a"), b = g.Group("b"), c = g.Group("c"), d = g.Group("d");
  const GroupRegisterId x = g.Edge("x", a, {b});
  const GroupRegisterId y = g.Edge("y", c, {d}, {.floats = 16});
  PlaceApart(g.graph);
  g.graph.reg(y).offset = g.graph.reg(x).offset + 128;
  EXPECT_EQ(Verify(g.graph, JobRegistry()).message(),
            "registers 'x' and 'y' share bytes 128 to 192 on node 0 cpu:0, but 'c' (work 'c', "
            "train.cc:3) may write 'y' while 'b' (work 'b', train.cc:2) still uses 'x'; a control "
            "edge from 'b' to 'c' with no initial token would order them");
  g.graph.AddControlEdge(b, c, 0);
  EXPECT_FALSE(Verify(g.graph, JobRegistry()).ok());
  g.graph.AddControlEdge(d, a, 1);
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());
}

TEST(VerifyTest, AnAllReduceWhoseInputIsStillReadIsNotInPlace) {
  GroupGraph g;
  const GroupId a = g.Group("a");
  const GroupId sum = g.Group("sum", {.stream = StreamKind::kTransfer, .work = Collective{}});
  const GroupId use = g.Group("use"), norm = g.Group("norm");
  const GroupRegisterId x = g.Edge("x", a, {sum});
  const GroupRegisterId y = g.Edge("y", sum, {use});
  g.graph.group(sum).movement()->source = g.graph.group(sum).movement()->destination = Floats(1024);
  PlaceApart(g.graph);
  g.graph.reg(y).offset = g.graph.reg(x).offset;
  g.graph.AddControlEdge(use, a, 1);
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());

  // Not at the same bytes, but over them.
  g.graph.reg(y).offset = g.graph.reg(x).offset + 64;
  EXPECT_THAT(
      std::string(Verify(g.graph, JobRegistry()).message()),
      HasSubstr("'sum' (train.cc:2) may write 'y' while 'sum' (train.cc:2) still uses 'x'"));
  g.graph.reg(y).offset = g.graph.reg(x).offset;
  g.graph.group(norm).inputs.push_back({.reg = x});
  EXPECT_THAT(std::string(Verify(g.graph, JobRegistry()).message()),
              HasSubstr("may write 'y' while 'norm' (work 'norm', train.cc:4) still uses 'x'"));
}

TEST(VerifyTest, RegistersOnDifferentDevicesMayHaveTheSameBytes) {
  GroupGraph g;
  const GroupId a = g.Group("a", {.placement = Cpu(0, 2)}),
                b = g.Group("b", {.placement = Cpu(2, 2)});
  g.Edge("x", a, {});
  const GroupRegisterId y = g.Edge("y", b, {});
  PlaceApart(g.graph);
  g.graph.reg(y).offset = 0;
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());
  const GroupId c = g.Group("c", {.placement = Cpu(1, 2)});
  const GroupRegisterId z = g.Edge("z", c, {});
  g.graph.LayOutParts();
  g.graph.reg(z).offset = 0;
  EXPECT_FALSE(Verify(g.graph, JobRegistry()).ok());
}

// A variable, its forward, another reader and its update.
struct Training {
  GroupGraph g;
  GroupId monitor = kNone, update = kNone;
};
Training MakeTraining() {
  Training t;
  GroupGraph& g = t.g;
  const GroupId w = g.Group("w", {.work = VariableOwner{}});
  const GroupId forward = g.Group("forward");
  t.monitor = g.Group("monitor");
  t.update = g.Group("w.update");
  KernelCall& kernel = g.graph.group(t.update).kernels()[0];
  kernel.op = "assign";
  g.Edge("w", w, {forward, t.monitor, t.update}, {.variable = "w"});
  g.Edge("grad", forward, {t.update});
  PlaceApart(g.graph);
  return t;
}

TEST(VerifyTest, AnOptimizerThatDoesNotWaitForAReader) {
  Training t = MakeTraining();
  EXPECT_EQ(Verify(t.g.graph, JobRegistry()).message(),
            "'w.update' (assign 'w.update', train.cc:4) may overwrite variable 'w' while 'monitor' "
            "(work 'monitor', train.cc:3) still reads this step's value; a control edge from "
            "'monitor' to 'w.update' with no initial token would make it wait");
  t.g.graph.AddControlEdge(t.monitor, t.update, 0);
  EXPECT_EQ(Verify(t.g.graph, JobRegistry()), absl::OkStatus());
}

TEST(VerifyTest, AVariableInTwoSlots) {
  Training t = MakeTraining();
  t.g.graph.AddControlEdge(t.monitor, t.update, 0);
  t.g.graph.reg(0).slots = 2;
  EXPECT_EQ(
      Verify(t.g.graph, JobRegistry()).message(),
      "'w.update' (assign 'w.update', train.cc:4) overwrites variable 'w' 1 times a step, and "
      "its register has 2 slots and 0 initial tokens; it must be once, 1 and 0");
}

// Rank 0's value goes to two devices; the gradient that its update gets comes from one of them.
TEST(VerifyTest, AReaderElsewhereOfWhichTheUpdateDoesNotHear) {
  GroupGraph g;
  const Placement here = Cpu(0, 2), there = Cpu(2, 2);
  const TensorLayout whole = Floats(1024);
  TensorLayout split = whole;
  split.sbp = NdSbp(std::vector<Sbp>{sbp::S(0)});
  const GroupId w = g.Group("w", {.placement = here, .work = VariableOwner{}});
  const GroupId send = g.Group("send", {.placement = there, .work = Exchange{}});
  const GroupId remote = g.Group("remote", {.placement = there});
  const GroupId back = g.Group("back", {.placement = here, .work = Exchange{}});
  const GroupId update = g.Group("w.update", {.placement = here});
  g.graph.group(update).kernels()[0].op = "assign";
  g.Edge("w", w, {send, update}, {.variable = "w"});
  g.Edge("sent", send, {remote});
  g.Edge("grad", remote, {back});
  g.Edge("grad.back", back, {update});
  g.graph.group(send).movement()->source = split;
  g.graph.group(back).movement()->source = g.graph.group(back).movement()->destination = split;
  PlaceApart(g.graph);
  EXPECT_EQ(Verify(g.graph, JobRegistry()).message(),
            "'w.update' (assign 'w.update', train.cc:5) may overwrite variable 'w' while 'send' "
            "(train.cc:2) still reads this step's value; a control edge from 'send' to 'w.update' "
            "with no initial token would make it wait");
  const auto planned = PlanMemory(g.graph, JobRegistry());
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(Verify(*planned, JobRegistry()), absl::OkStatus());

  // If the gradient is gathered from both, both have read.
  g.graph.group(back).movement()->destination = whole;
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());
  // Or if each value goes to one device, and its gradient comes from there.
  g.graph.group(send).movement()->destination = g.graph.group(back).movement()->destination = split;
  EXPECT_EQ(Verify(g.graph, JobRegistry()), absl::OkStatus());
}

// ---- invariants --------------------------------------------------------------------------------

TEST(VerifyTest, Invariants) {
  const auto broken = [](auto&& change) {
    GroupGraph g;
    const GroupId a = g.Group("a", {.acts_per_step = 4}), b = g.Group("b", {.acts_per_step = 4});
    g.Edge("x", a, {b});
    g.graph.LayOutParts();
    EXPECT_EQ(VerifyInvariants(g.graph), absl::OkStatus());
    change(g.graph);
    return std::string(VerifyInvariants(g.graph).message());
  };
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.group(1).acts_per_step = 2; }),
            "'b' (work 'b', train.cc:2): uses up 2/1 slots of register 'x' a step, 'a' fills 4/1");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).period = 3; }),
            "register 'x': period 3 does not divide the 4 acts a step of 'a'");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).producer = 7; }),
            "register 'x': no group produces it");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).slots = 0; }),
            "register 'x': 0 slots, period 1, 0 initial tokens");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).initial_tokens = 2; }),
            "register 'x': 1 slots, period 1, 2 initial tokens");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.group(1).kernels()[0].inputs[0].part = 1; }),
            "'b' (work 'b', train.cc:2): kernel 'b' names an operand that does not exist");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.group(1).kernels()[0].input_layouts[0] = Floats(8); }),
            "'b' (work 'b', train.cc:2): kernel 'b' takes f32[8] B where there is f32[1024] B");
  EXPECT_EQ(broken([](PhysicalGraph& g) {
              g.group(1).inputs.push_back({0, 1});
            }),
            "'b' (work 'b', train.cc:2): reads register 'x' through two inputs");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).slot_bytes = 64; }),
            "register 'x': parts end at byte 4096 of a slot of 64");
  EXPECT_EQ(broken([](PhysicalGraph& g) { g.reg(0).placement = Cpu(1, 1); }),
            "register 'x': is on cpu[1]{0.1}, its producer 'a' on cpu[1]{0.0}");
}

// ---- real jobs ----------------------------------------------------------------------------------

// Every pass, on jobs of every kind: nothing is refused, and memory is shared.
TEST(VerifyTest, PlansOfRealJobsHold) {
  const Placement four = CpuDevices(2, 2);
  const std::string first = " on=cpu[2]{0.0 0.1}", second = " on=cpu[2]{1.0 1.1}";
  for (const int micro_batches : {1, 4}) {
    for (const MlpText& mlp :
         {MlpText{}, MlpText{.fc1_hint = "S(1)", .fc2_hint = "S(0)"}, MlpText{.fc1_hint = "S(0)"},
          MlpText{.stage1 = first, .stage2 = second},
          MlpText{.fc1_hint = "S(1)", .stage1 = first, .stage2 = second}}) {
      for (const Placement& devices : {CpuDevices(1, 1), CpuDevices(1, 3), four}) {
        if (!mlp.stage1.empty() && devices != four) continue;
        MlpText text = mlp;
        text.micro_batches = micro_batches;
        auto graph = LowerMlp(text, devices);
        ASSERT_TRUE(graph.ok()) << graph.status();
        ASSERT_EQ(VerifyInvariants(*graph), absl::OkStatus());
        for (const bool is_chained : {false, true}) {
          auto planned = graph;
          if (is_chained) {
            planned = BucketCollectives(*planned);
            ASSERT_TRUE(planned.ok()) << planned.status();
            planned = FormChains(*planned);
            ASSERT_TRUE(planned.ok()) << planned.status();
          }
          planned = AssignSlots(*planned);
          ASSERT_TRUE(planned.ok()) << planned.status();
          planned = PlanMemory(*planned, JobRegistry());
          ASSERT_TRUE(planned.ok()) << planned.status();
          EXPECT_EQ(Verify(*planned, JobRegistry()), absl::OkStatus()) << planned->ToString();
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::compiler
