#include "compiler/lower_servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/compile.h"
#include "compiler/plan/expand.h"
#include "compiler/plan/invariants.h"
#include "compiler/plan/plan_codec.h"
#include "compiler/verify.h"
#include "graph/functional.h"
#include "tests/compiler/logical_passes.h"

namespace braid::compiler {
namespace {

using ::testing::HasSubstr;

constexpr int kWorkers = 3, kBound = 2;

// Workers on the first nodes, each with its rows of x, and a server that has `w` behind them.
absl::StatusOr<PhysicalGraph> CompileServed(int servers, int bound = kBound) {
  const Placement devices = Devices(kWorkers + servers, 1);
  LogicalGraph graph(&Registry());
  graph.training = true;
  graph.PushPlacement(devices.Slice(kWorkers, servers));
  const Tensor w = Variable(graph, {.name = "w", .shape = {4, 2}, .sbp = sbp::S(0)});
  graph.PopPlacement();
  const Tensor x = Input(graph, "x", {DType::kF32, {6, 4}});
  graph.PushPlacement(devices.Slice(0, kWorkers));
  const Tensor loss = Mean(Square(MatMul(ToSbp(x, sbp::S(0)), w)));
  graph.PopPlacement();
  Fetch(loss, "loss");
  graph.minimize().push_back({.loss = loss.id(),
                              .optimizer = "sgd_update",
                              .attrs = {{"learning_rate", 0.5},
                                        {"weight_decay", 0.0},
                                        {"max_staleness", int64_t{bound}},
                                        {"workers", int64_t{kWorkers}}}});
  BRAID_ASSIGN_OR_RETURN(Compiled compiled,
                         Compile(std::move(graph), {.job = "served",
                                                    .all_devices = devices,
                                                    .master = devices.Slice(0, 1),
                                                    .num_nodes = devices.size()}));
  return std::move(compiled.physical);
}

const TaskGroup& FindGroup(const PhysicalGraph& graph,
                           const std::function<bool(const TaskGroup&)>& is_it) {
  const auto found = std::ranges::find_if(graph.groups(), is_it);
  EXPECT_NE(found, graph.groups().end());
  return *found;
}
const TaskGroup& UpdateOf(const PhysicalGraph& graph) {
  return FindGroup(graph, [](const TaskGroup& group) { return group.lanes() > 0; });
}
const TaskGroup& ExchangeOf(const PhysicalGraph& graph, Exchange::Lanes lanes) {
  return FindGroup(graph, [&](const TaskGroup& group) { return group.exchange_lanes() == lanes; });
}

TEST(LowerServersTest, WorkersPullAndPushByLanes) {
  const auto graph = CompileServed(1);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const TaskGroup& update = UpdateOf(*graph);
  EXPECT_EQ(update.lanes(), kWorkers);
  EXPECT_EQ(update.acts_per_step, kWorkers);
  EXPECT_TRUE(graph->reg(update.inputs[0].reg).is_by_lane);
  const TaskGroup& pull = ExchangeOf(*graph, Exchange::Lanes::kPull);
  EXPECT_EQ(pull.stream, StreamKind::kCompute);
  ASSERT_EQ(pull.inputs.size(), 2u);
  const Register& owned = graph->reg(pull.inputs[0].reg);
  EXPECT_EQ(owned.slots, kBound) << "so many steps may workers be apart";
  const Register& turn = graph->reg(pull.inputs[1].reg);
  EXPECT_EQ(turn.producer, update.id);
  EXPECT_EQ(turn.initial_tokens, 1);
  const std::string text = graph->ToString();
  EXPECT_THAT(text, HasSubstr("lanes=3"));
  EXPECT_THAT(text, HasSubstr("served w f32[4, 2]"));
}

TEST(LowerServersTest, ThePlanGoesToNodesAndBack) {
  const auto graph = CompileServed(2);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::string bytes = EncodePlan(*graph);
  const auto decoded = DecodePlan(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(EncodePlan(*decoded), bytes);
}

// A task of a node's part whose group has that name.
std::vector<plan::Task> TasksOf(const plan::NodePlan& plan, const std::string& group) {
  std::vector<plan::Task> tasks;
  for (const plan::Task& task : plan.tasks) {
    if (task.name == group) tasks.push_back(task);
  }
  return tasks;
}

TEST(LowerServersTest, AServersTaskHasALaneForEachWorker) {
  const auto graph = CompileServed(2);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto server = ExpandPlan(*graph, kWorkers);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::vector<plan::Task> updates = TasksOf(*server, UpdateOf(*graph).name);
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].lanes, 3u);
  for (int lane = 0; lane < kWorkers; ++lane) {
    const plan::Input& input = updates[0].inputs[lane];
    EXPECT_EQ(input.lane, lane);
    EXPECT_EQ(input.producer.node, lane);
    EXPECT_EQ(input.memory->bytes, 64u) << "16 bytes, of its half of w";
  }
  // A pull for each worker, of what is copied before it goes, after that worker's turn.
  const std::vector<plan::Task> pulls =
      TasksOf(*server, ExchangeOf(*graph, Exchange::Lanes::kPull).name);
  ASSERT_EQ(pulls.size(), 3u);
  for (int worker = 0; worker < kWorkers; ++worker) {
    const auto& transfer = std::get<plan::Transfer>(pulls[worker].work);
    EXPECT_EQ(transfer.peer, worker);
    EXPECT_TRUE(transfer.staging.has_value());
    ASSERT_EQ(pulls[worker].inputs.size(), 2u);
    const auto turn = std::ranges::find_if(updates[0].outputs, [&](const plan::Output& output) {
      return output.reg == pulls[worker].inputs[1].reg;
    });
    ASSERT_NE(turn, updates[0].outputs.end());
    EXPECT_EQ(turn->lane, worker);
    EXPECT_EQ(turn->consumers, (std::vector<plan::ActorId>{pulls[worker].id}));
  }
}

// Plans that no node may expand.
TEST(LowerServersTest, WrongLanesAreSeen) {
  const auto graph = CompileServed(1);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const GroupId update = UpdateOf(*graph).id;
  const GroupId pull = ExchangeOf(*graph, Exchange::Lanes::kPull).id;
  const GroupId push = ExchangeOf(*graph, Exchange::Lanes::kPush).id;
  const auto broken = [&](const std::function<void(PhysicalGraph&)>& change) {
    PhysicalGraph wrong = *graph;
    change(wrong);
    return std::string(VerifyInvariants(wrong).message());
  };
  for (const int lanes : {0, 2}) {
    EXPECT_THAT(
        broken([&](PhysicalGraph& g) { std::get<Compute>(g.group(update).work).lanes = lanes; }),
        HasSubstr("an exchange reads its source alone, not 'w.sgd_update->w.pull'"));
  }
  EXPECT_THAT(
      broken([&](PhysicalGraph& g) { g.reg(g.group(update).inputs[0].reg).is_by_lane = 0; }),
      HasSubstr("pushes into a register with memory of its own"));
  EXPECT_THAT(broken([&](PhysicalGraph& g) {
                std::get<Exchange>(g.group(pull).work).lanes = Exchange::Lanes::kNone;
              }),
              HasSubstr("an exchange reads its source alone"));
  EXPECT_THAT(broken([&](PhysicalGraph& g) {
                std::get<Exchange>(g.group(push).work).lanes = Exchange::Lanes::kPull;
              }),
              HasSubstr("moves data by lanes and is no push"));
  EXPECT_THAT(
      broken([&](PhysicalGraph& g) { g.group(push).movement()->source.sbp = NdSbp(sbp::S(0)); }),
      HasSubstr("every worker must have an addend"));
  EXPECT_THAT(
      broken([&](PhysicalGraph& g) { std::get<Compute>(g.group(update).work).served.clear(); }),
      HasSubstr("operand that does not exist"));
}

}  // namespace
}  // namespace braid::compiler
