// The whole cluster over simulated sockets: the same losses for every order, and an end in bounded
// time with one cause for every fault.
//
// BRAID_SIM_SEEDS=1000 runs more seeds, BRAID_SIM_FIRST=n starts at seed n (to replay one).
#include "tests/simulation/sim_cluster.h"

#include <algorithm>
#include <map>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"
#include "tests/support/from_environment.h"

namespace braid {
namespace {

using examples::Parallel;

void Mlp(Job& job) { examples::TrainMnist(job, SmallMnist(Parallel::kData, DType::kF32)); }

class SimClusterTest : public ::testing::Test {
 protected:
  const uint64_t first_ = FromEnvironment("BRAID_SIM_FIRST", 1);
  const uint64_t seeds_ = FromEnvironment("BRAID_SIM_SEEDS", 12);
};

TEST_F(SimClusterTest, EverySeedGivesTheLossesOfOneProcess) {
  const auto expected = RunTraining({.layout = {"data", {1, 1, 1}}, .steps = 3}, Mlp);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (uint64_t seed = first_; seed < first_ + seeds_; ++seed) {
    const SimClusterOptions options{.seed = seed, .record = Mlp};
    const SimOutcome outcome = RunSimCluster(options);
    ASSERT_EQ(CheckOutcome(options, outcome), "") << "seed " << seed;
    ASSERT_EQ(outcome.losses, expected->losses) << "seed " << seed;
  }
}

TEST_F(SimClusterTest, ASeedReplays) {
  const SimFault fault = DrawFault(first_, 3, 20 * kMillisecond, SimFault::Kind::kNoMemory);
  uint64_t digests[3];
  for (int i = 0; i < 3; ++i) {
    const SimOutcome outcome =
        RunSimCluster({.seed = first_ + (i == 2), .faults = {fault}, .record = Mlp});
    digests[i] = outcome.digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

// Between any two events: some of a program's states last for one event only.
TEST_F(SimClusterTest, AMasterMayDieAtAnyEvent) {
  SimClusterOptions options{.seed = first_, .devices = {1, 1}, .record = Mlp, .steps = 1};
  const SimOutcome whole = RunSimCluster(options);
  ASSERT_EQ(CheckOutcome(options, whole), "");
  ASSERT_GT(whole.num_events, 0);
  // Every few of them where fewer seeds are asked for.
  const uint64_t stride = std::max<uint64_t>(12 / std::max<uint64_t>(seeds_, 1), 1);
  SimFault fault{.kind = SimFault::Kind::kCrash, .node = 0, .at = whole.end};
  for (fault.at_event = 1; fault.at_event <= whole.num_events; fault.at_event += stride) {
    options.faults = {fault};
    ASSERT_EQ(CheckOutcome(options, RunSimCluster(options)), "") << "event " << fault.at_event;
  }
}

TEST_F(SimClusterTest, EveryFaultEndsEverybodyWithOneCause) {
  std::map<std::string, int> counts;
  for (uint64_t seed = first_; seed < first_ + 5 * seeds_; ++seed) {
    SimClusterOptions options{.seed = seed, .record = Mlp};
    const Nanoseconds horizon = RunSimCluster(options).nodes[0].ended;
    options.faults = {DrawFault(seed, 3, horizon, SimFault::Kind::kNoMemory)};
    const SimOutcome outcome = RunSimCluster(options);
    ASSERT_EQ(CheckOutcome(options, outcome), "")
        << "seed " << seed << ", " << options.faults[0].ToString();
    ++counts[outcome.losses.empty() ? "failed" : "finished"];
  }
  EXPECT_GT(counts["failed"], 0) << "no fault hit anything";
}

}  // namespace
}  // namespace braid
