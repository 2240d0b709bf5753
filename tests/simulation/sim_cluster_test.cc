// The whole cluster over simulated sockets: the same losses for every order, and an end in bounded
// time with one cause for every fault.
//
// BRAID_SIM_SEEDS=1000 runs more seeds, BRAID_SIM_FIRST=n starts at seed n (to replay one).
#include "tests/simulation/sim_cluster.h"

#include <cstdlib>
#include <map>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;

uint64_t FromEnvironment(const char* name, uint64_t missing) {
  const char* text = std::getenv(name);
  return text == nullptr ? missing : std::strtoull(text, nullptr, 10);
}

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
  const SimFault fault = DrawFault(first_, 3, 20 * kMillisecond);
  uint64_t digests[3];
  for (int i = 0; i < 3; ++i) {
    const SimOutcome outcome =
        RunSimCluster({.seed = first_ + (i == 2), .faults = {fault}, .record = Mlp});
    digests[i] = outcome.digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST_F(SimClusterTest, EveryFaultEndsEverybodyWithOneCause) {
  std::map<std::string, int> counts;
  for (uint64_t seed = first_; seed < first_ + 5 * seeds_; ++seed) {
    SimClusterOptions options{.seed = seed, .record = Mlp};
    const Nanoseconds horizon = RunSimCluster(options).nodes[0].ended;
    options.faults = {DrawFault(seed, 3, horizon)};
    const SimOutcome outcome = RunSimCluster(options);
    ASSERT_EQ(CheckOutcome(options, outcome), "")
        << "seed " << seed << ", " << options.faults[0].ToString();
    ++counts[outcome.losses.empty() ? "failed" : "finished"];
  }
  EXPECT_GT(counts["failed"], 0) << "no fault hit anything";
}

}  // namespace
}  // namespace braid
