// Clusters of devices that lag, alone and beside CPUs: every seed gives the CPUs' numbers, bit for
// bit. And what would go wrong if an order between streams were left out.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/temp_dir.h"
#include "tests/simulation/sim_plans.h"
#include "tests/simulation/sim_runner.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

constexpr uint64_t kLaggingSeeds = 12;

std::vector<double> LossesOn(const SimPlan& plan, uint64_t seed,
                             LaggingFault fault = LaggingFault::kNone) {
  const auto compiled = CompileSimPlan(plan, fault);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const auto losses = MakeLoopbackRunner({.plan = *compiled, .make_transports = {}})->Run(seed);
  // What a broken order makes may end the run: a label that is none, say.
  EXPECT_TRUE(losses.ok() || fault != LaggingFault::kNone) << losses.status();
  return losses.ok() ? *losses : std::vector<double>();
}

class LaggingClusters : public ::testing::Test {
 protected:
  SimPlan Plan(const std::string& name) const {
    return *FindSimPlan(MakeSimPlans(folder_.path()), name);
  }
  // Of the seeds, how many give other numbers than CPUs do.
  int Wrong(const SimPlan& plan, LaggingFault fault) const {
    const std::vector<double> right = LossesOn(WithDevices(plan, DeviceMix::kCpu), 1);
    int wrong = 0;
    for (uint64_t seed = 1; seed <= kLaggingSeeds; ++seed) {
      const SimPlan lagging = WithDevices(plan, DeviceMix::kLagging);
      if (LossesOn(lagging, seed, fault) != right) ++wrong;
    }
    return wrong;
  }

  const TempDir folder_;
};

TEST_F(LaggingClusters, GiveTheNumbersOfCpus) {
  for (const SimPlan& plan : MakeSimPlans(folder_.path())) {
    const std::vector<double> right = LossesOn(WithDevices(plan, DeviceMix::kCpu), 1);
    ASSERT_FALSE(right.empty());
    for (const DeviceMix devices : {DeviceMix::kLagging, DeviceMix::kMixed}) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        EXPECT_EQ(LossesOn(WithDevices(plan, devices), seed), right)
            << plan.name << ", seed " << seed;
      }
    }
  }
}

// What tasks of the plan do on the devices together.
int64_t CollectivesIn(const SimPlan& plan) {
  const auto compiled = CompileSimPlan(plan);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return !compiled.ok()
             ? 0
             : std::ranges::count_if((*compiled)->physical.groups(), [](const auto& group) {
                 return group.stream == StreamKind::kCollective;
               });
}

// Devices sum in rank order, which is no ring's: the numbers are those of CPUs up to rounding, and
// the same for every seed.
TEST_F(LaggingClusters, CollectBetweenNodes) {
  int plans = 0;
  for (const SimPlan& plan : MakeSimPlans(folder_.path())) {
    const SimPlan network = WithDevices(plan, DeviceMix::kNetwork);
    if (CollectivesIn(network) == CollectivesIn(WithDevices(plan, DeviceMix::kLagging))) continue;
    ++plans;
    const std::vector<double> right = LossesOn(WithDevices(plan, DeviceMix::kCpu), 1);
    const std::vector<double> first = LossesOn(network, 1);
    ASSERT_EQ(first.size(), right.size()) << plan.name;
    for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(first[i], right[i], 1e-5) << plan.name;
    for (uint64_t seed = 2; seed <= kLaggingSeeds; ++seed) {
      EXPECT_EQ(LossesOn(network, seed), first) << plan.name << ", seed " << seed;
    }
  }
  EXPECT_GE(plans, 4);
}

// What a fault leaves half done: nobody waits on a device for one that has gone.
TEST_F(LaggingClusters, CollectivesBetweenNodesEndWithTheirMembers) {
  const auto runner = MakeFaultRunner(WithDevices(Plan("stacked"), DeviceMix::kNetwork));
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (uint64_t seed = 1; seed <= 4 * kLaggingSeeds; ++seed) {
    const auto losses = (*runner)->Run(seed);
    EXPECT_TRUE(losses.ok()) << "seed " << seed << ": " << losses.status();
  }
}

TEST_F(LaggingClusters, WhoReadsWaitsForWhoWrites) {
  EXPECT_GT(Wrong(Plan("hybrid"), LaggingFault::kReadsTooEarly), 0);
}

TEST_F(LaggingClusters, WhoWritesWaitsForWhoReads) {
  EXPECT_GT(Wrong(Plan("pipeline"), LaggingFault::kWritesTooEarly), 0);
}

TEST_F(LaggingClusters, PinnedSlotsAreUsedAgainWhenTheDeviceIsThroughWithThem) {
  EXPECT_GT(Wrong(Plan("hybrid"), LaggingFault::kNotifiesEarly), 0);
}

TEST_F(LaggingClusters, CollectivesWaitForWhoWritesWhatTheyRead) {
  EXPECT_GT(Wrong(Plan("hybrid"), LaggingFault::kMeetsTooEarly), 0);
}

// Without the order that the compiler gave them; every register has bytes of its own, so that no
// other order is missed.
compiler::PhysicalGraph WithoutOrder(const compiler::PhysicalGraph& graph) {
  compiler::PhysicalGraph result = graph;
  const auto is_on_device = [&](compiler::GroupId id) {
    return graph.group(id).stream == StreamKind::kCollective;
  };
  std::vector<bool> keep(graph.registers().size(), true);
  for (const compiler::TaskGroup& group : graph.groups()) {
    for (const compiler::GroupInput& input : group.inputs) {
      const compiler::Register& reg = graph.reg(input.reg);
      if (reg.is_control() && is_on_device(reg.producer) && is_on_device(group.id)) {
        keep[reg.id] = false;
      }
    }
  }
  result.Prune(std::vector<bool>(graph.groups().size(), true), keep);
  int64_t end = 0;
  for (const compiler::Register& reg : result.registers()) {
    if (reg.offset < 0) continue;
    result.reg(reg.id).offset = end;
    end = compiler::AlignInArena(end + reg.slots * reg.slot_bytes);
  }
  return result;
}

// The verifier demands the order; and without it some members come to the same collectives in
// another order than others, which no other checker finds before they wait for each other.
TEST_F(LaggingClusters, CollectivesSwappedOnOneMemberAreFound) {
  for (const DeviceMix mix : {DeviceMix::kLagging, DeviceMix::kNetwork}) {
    SCOPED_TRACE(NameOf(mix));
    const auto compiled = CompileSimPlan(WithDevices(Plan("stacked"), mix));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto plan = std::make_shared<CompiledSimPlan>(**compiled);
    ASSERT_EQ(compiler::Verify(plan->physical, plan->operators), absl::OkStatus());
    plan->physical = WithoutOrder(plan->physical);
    EXPECT_THAT(std::string(compiler::Verify(plan->physical, plan->operators).message()),
                testing::HasSubstr("each device may come to them in an order of its own"));
    int swapped = 0;
    for (uint64_t seed = 1; seed <= 4 * kLaggingSeeds; ++seed) {
      const auto losses = MakeLoopbackRunner({.plan = plan, .make_transports = {}})->Run(seed);
      if (losses.ok()) continue;
      // Between nodes more than two may wait in a circle, and others meet than those who know each
      // other.
      if (mix == DeviceMix::kLagging) {
        EXPECT_THAT(std::string(losses.status().message()),
                    testing::HasSubstr("their orders differ"))
            << "seed " << seed;
      }
      ++swapped;
    }
    EXPECT_GT(swapped, 0);
  }
}

absl::Status Train(const SimPlan& plan, uint64_t seed, LaggingFault fault, LaggingCounts& counts) {
  SessionOptions options;
  options.devices = {1, 1};
  options.node_kinds = {"lagging", "lagging"};
  options.device_kinds = KindsWithLagging(fault, &counts);
  options.simulation_seed = seed;
  options.progress = Progress::kOff;
  const auto session = Session::Start(std::move(options));
  if (!session.ok()) return session.status();
  auto job = (*session)->Compile("train", plan.record);
  if (!job.ok()) return job.status();
  for (int run = 0; run < 2; ++run) {
    if (const auto result = job->Run({.steps = 2}); !result.ok()) return result.status();
    EXPECT_GT(counts.done, 0);
    EXPECT_EQ(counts.queued, counts.done) << "a Run has ended before its streams";
  }
  return (*session)->Close(absl::OkStatus());
}

TEST_F(LaggingClusters, ARunEndsWithItsStreams) {
  for (uint64_t seed = 1; seed <= kLaggingSeeds; ++seed) {
    LaggingCounts counts;
    EXPECT_EQ(Train(Plan("data"), seed, LaggingFault::kNone, counts), absl::OkStatus());
  }
}

TEST_F(LaggingClusters, ARunThatEndsBeforeItsStreamsIsSeen) {
  const auto train_early = [this] {
    for (uint64_t seed = 1; seed <= kLaggingSeeds; ++seed) {
      LaggingCounts counts;
      Train(Plan("data"), seed, LaggingFault::kDrainsEarly, counts).IgnoreError();
    }
  };
  EXPECT_DEATH(train_early(), "its job ended before the device had done its work");
}

}  // namespace
}  // namespace braid
