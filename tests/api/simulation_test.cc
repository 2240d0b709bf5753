// The whole cluster in one thread, in an order drawn by a seed: every order gives the same bits,
// and none hangs. Simulations carry the checks for credits and for overlapping bytes.
//
// BRAID_SIM_SEEDS=10000 runs more seeds, BRAID_SIM_FIRST=n starts at seed n (to replay one).

#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

using examples::Parallel;

uint64_t FromEnvironment(const char* name, uint64_t missing) {
  const char* text = std::getenv(name);
  return text == nullptr ? missing : std::strtoull(text, nullptr, 10);
}

void ExpectOneResult(const LayoutCase& layout, const std::function<void(Job&)>& record) {
  const uint64_t first = FromEnvironment("BRAID_SIM_FIRST", 1);
  const uint64_t count = FromEnvironment("BRAID_SIM_SEEDS", 60);
  std::vector<double> losses;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto run = RunTraining({.layout = layout, .steps = 3, .simulation_seed = seed}, record);
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status().message();
    ASSERT_EQ(run->losses.size(), 3u) << "seed " << seed;
    if (losses.empty()) losses = run->losses;
    ASSERT_EQ(run->losses, losses) << "seed " << seed;
  }
  // Threads take one more order.
  const auto run = RunTraining({.layout = layout, .steps = 3}, record);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->losses, losses);
}

TEST(SimulationTest, MnistHybridHasOneResult) {
  ExpectOneResult({"hybrid on 2x2", {2, 2}, Parallel::kHybrid}, [](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kHybrid, DType::kF32));
  });
}

TEST(SimulationTest, MnistDataOnUnequalNodesHasOneResult) {
  ExpectOneResult({"data on 1+2", {1, 2}, Parallel::kData}, [](Job& job) {
    examples::TrainMnist(job, SmallMnist(Parallel::kData, DType::kF32));
  });
}

TEST(SimulationTest, GptPipelineWithMicroBatchesHasOneResult) {
  const std::string text = MakeTextFile();
  ExpectOneResult({"pipeline on 2x1", {1, 1}, Parallel::kPipeline}, [text](Job& job) {
    examples::GptOptions options = SmallGpt(Parallel::kPipeline, DType::kF32, text);
    options.micro_batches = 4;
    examples::TrainGpt(job, options);
  });
}

}  // namespace
}  // namespace braid
