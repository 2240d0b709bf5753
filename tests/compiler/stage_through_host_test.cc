#include "compiler/physical/stage_through_host.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/invariants.h"
#include "tests/compiler/physical_jobs.h"

namespace braid::compiler {
namespace {

// Nodes 0 and 1; what a reader and a feed bring is multiplied, its gradient summed and fetched.
constexpr char kJob[] = R"(
%0:f32[8, 4] = read "data" () {batch=8 types="f32[8, 4]"} on=cpu[2]{0.0 1.0} sbp=()->(S(0))
%1:f32[4, 6] = input "x" () {dtype=f32 shape=[4, 6]} on=cpu[1]{0.0} sbp=()->(B)
%2:f32[8, 6] = matmul "fc" (%0, %1) on=cpu[2]{0.0 1.0} sbp=(S(0), B)->(S(0))
%3:f32[4, 6] = tensordot "dw" (%0, %2) on=cpu[2]{0.0 1.0} sbp=(S(0), S(0))->(P)
%4:f32[4, 6] = relu "r" (%3) on=cpu[2]{0.0 1.0} sbp=(B)->(B)
fetch "y" (%4) {name="y"} on=cpu[1]{0.0} sbp=(B)->()
)";

const DeviceKind kCard = {.name = "card", .is_host = false};

PhysicalGraph Staged(NodeKinds kinds) {
  auto graph = LowerText(kJob, std::move(kinds));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? StageThroughHost(*std::move(graph)) : PhysicalGraph();
}

std::vector<std::string> StagingsOf(const PhysicalGraph& graph) {
  std::vector<std::string> names;
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Staging>()) names.push_back(group.name);
  }
  return names;
}

TEST(StageThroughHost, CpusStayAsTheyAre) {
  const auto before = LowerText(kJob);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(Staged({}).ToString(), before->ToString());
}

TEST(StageThroughHost, EachRegisterIsCopiedOnceWhereItsReadersWork) {
  // The reader's rows are read by two kernels, the sum by one.
  const std::vector<std::string> expected = {"data.to_device", "x.slice_exchange.to_device",
                                             "dw.to_host", "dw.all_reduce.to_device", "r.to_host"};
  EXPECT_EQ(StagingsOf(Staged(NodeKinds({kCard, kCard}))), expected);
  // A placement with one such node is staged as a whole: its nodes run the same groups.
  EXPECT_EQ(StagingsOf(Staged(NodeKinds({DeviceKind(), kCard}))), expected);
}

TEST(StageThroughHost, EveryEndOfARegisterIsInItsMemory) {
  const PhysicalGraph graph = Staged(NodeKinds({DeviceKind(), kCard}));
  EXPECT_EQ(VerifyInvariants(graph), absl::OkStatus());
  const auto side = [&](const TaskGroup& group) {
    return IsHostStream(group.stream) ? MemoryKind::kPinned : MemoryKind::kOwn;
  };
  for (const TaskGroup& group : graph.groups()) {
    const bool stages = group.is<Staging>();
    for (const GroupInput& input : group.inputs) {
      const Register& reg = graph.reg(input.reg);
      // What lies on node 0 alone is a CPU's, which has one memory.
      if (reg.is_control() || graph.kinds.AreHost(reg.placement)) continue;
      EXPECT_TRUE(stages || reg.memory == side(group)) << group.name << " reads " << reg.name;
    }
    for (const GroupRegisterId id : group.outputs) {
      const Register& reg = graph.reg(id);
      if (reg.is_control() || graph.kinds.AreHost(reg.placement)) continue;
      EXPECT_TRUE(stages || reg.memory == side(group)) << group.name << " fills " << reg.name;
    }
  }
}

TEST(StageThroughHost, ACopyOfOtherPartsIsBroken) {
  PhysicalGraph graph = Staged(NodeKinds({kCard, kCard}));
  for (const TaskGroup& group : graph.groups()) {
    if (group.is<Staging>()) graph.reg(group.outputs[0]).memory = MemoryKind::kOwn;
  }
  EXPECT_EQ(VerifyInvariants(graph).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace braid::compiler
