// Whole clusters in one thread, in orders drawn by seeds: every order gives the same bits, none
// hangs, none leaves anything behind. Simulations carry the checks for credits and for overlapping
// bytes. braid_sim runs more seeds of the same.

#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"
#include "tests/simulation/sim_campaign.h"
#include "tests/simulation/sim_plans.h"
#include "tests/simulation/sim_runner.h"
#include "tests/support/from_environment.h"

namespace braid {
namespace {

using examples::Parallel;

// Fewer under sanitizers.
uint64_t NumSeeds(uint64_t usual) { return FromEnvironment("BRAID_SIM_SEEDS", usual); }

// The losses of all seeds.
std::vector<double> ExpectOneResult(const SimPlan& plan, uint64_t seeds) {
  const auto compiled = CompileSimPlan(plan);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const auto runner = MakeLoopbackRunner({.plan = *compiled, .make_transports = {}});
  const CampaignResult result = RunCampaign(*runner, {.seeds = seeds});
  EXPECT_EQ(result.failure, "") << plan.name << ", seed " << result.failing_seed;
  return result.losses;
}

// The same job as a user runs it.
std::vector<double> LossesOfSession(const SimPlan& plan, std::optional<uint64_t> seed) {
  SessionOptions options;
  options.devices = plan.devices;
  options.seed = kSimProgramSeed;
  options.simulation_seed = seed;
  options.progress = Progress::kOff;
  const auto session = Session::Start(options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (plan.extend) {
    EXPECT_EQ(plan.extend((*session)->operators(), (*session)->kernels()), absl::OkStatus());
  }
  auto job = (*session)->Compile("train", plan.record);
  EXPECT_TRUE(job.ok()) << job.status();
  std::vector<double> losses;
  for (const int64_t steps : kSimRuns) {
    const auto run = job->Run({.steps = steps});
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    for (const double loss : run->Scalars("loss")) losses.push_back(loss);
  }
  return losses;
}

TEST(SimulationTest, EveryPlanHasOneResultUnderAllSeedsAndInSessions) {
  for (const SimPlan& plan : MakeSimPlans(TestFolder())) {
    SCOPED_TRACE(plan.name);
    const std::vector<double> losses = ExpectOneResult(plan, NumSeeds(100));
    ASSERT_EQ(losses.size(), 3u);
    EXPECT_NE(losses[0], losses[2]) << "it learns nothing";
    // Threads take one more order.
    EXPECT_EQ(LossesOfSession(plan, std::nullopt), losses);
    EXPECT_EQ(LossesOfSession(plan, 7), losses);
  }
}

// Over simulated sockets, where most seeds have a fault.
TEST(SimulationTest, EveryPlanEndsWithOneResultOrOneCauseUnderFaults) {
  for (const SimPlan& plan : MakeSimPlans(TestFolder())) {
    SCOPED_TRACE(plan.name);
    const auto runner = MakeFaultRunner(plan);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const CampaignResult result = RunCampaign(**runner, {.seeds = NumSeeds(20)});
    EXPECT_EQ(result.failure, "") << "seed " << result.failing_seed;
    EXPECT_EQ(result.losses, LossesOfSession(plan, std::nullopt));
  }
}

// Of larger tensors, which travel in chunks.
TEST(SimulationTest, TheExamplesHaveOneResult) {
  const auto mnist = [](Parallel parallel) {
    return [parallel](Job& job) { examples::TrainMnist(job, SmallMnist(parallel, DType::kF32)); };
  };
  const std::string text = MakeTextFile();
  const auto gpt = [text](Job& job) {
    examples::GptOptions options = SmallGpt(Parallel::kPipeline, DType::kF32, text);
    options.micro_batches = 4;
    examples::TrainGpt(job, options);
  };
  const std::vector<SimPlan> plans = {
      {"mnist, hybrid", {2, 2}, mnist(Parallel::kHybrid)},
      {"mnist, data on unequal nodes", {1, 2}, mnist(Parallel::kData)},
      {"gpt, pipeline", {1, 1}, gpt}};
  for (const SimPlan& plan : plans) {
    const std::vector<double> losses = ExpectOneResult(plan, NumSeeds(40));
    EXPECT_EQ(LossesOfSession(plan, std::nullopt), losses);
  }
}

// ---- what the program says of a seed that fails -------------------------------------------------

class BadSeeds final : public SimRunner {
 public:
  explicit BadSeeds(std::function<absl::StatusOr<std::vector<double>>(uint64_t)> run)
      : run_(std::move(run)) {}
  absl::StatusOr<std::vector<double>> Run(uint64_t seed) override { return run_(seed); }

 private:
  std::function<absl::StatusOr<std::vector<double>>(uint64_t)> run_;
};

CampaignResult RunBad(std::function<absl::StatusOr<std::vector<double>>(uint64_t)> run,
                      int seconds_per_seed = 60) {
  BadSeeds runner(std::move(run));
  return RunCampaign(
      runner, {.first_seed = 10, .seeds = 40, .jobs = 2, .seconds_per_seed = seconds_per_seed});
}

TEST(CampaignTest, AFailingSeedIsNamed) {
  const CampaignResult result = RunBad([](uint64_t seed) -> absl::StatusOr<std::vector<double>> {
    if (seed == 33) return absl::InternalError("no event left");
    return std::vector<double>{1, 2};
  });
  EXPECT_EQ(result.failing_seed, 33u);
  EXPECT_EQ(result.failure, "INTERNAL: no event left");
}

TEST(CampaignTest, OtherLossesAreNamed) {
  const CampaignResult result = RunBad([](uint64_t seed) -> absl::StatusOr<std::vector<double>> {
    return std::vector<double>{1, seed == 20 ? 2.5 : 2};
  });
  EXPECT_EQ(result.failing_seed, 20u);
  EXPECT_EQ(result.failure, "its losses are 1, 2.5; the first seed's were 1, 2");
}

TEST(CampaignTest, ASeedThatCrashesIsNamed) {
  const CampaignResult result = RunBad([](uint64_t seed) -> absl::StatusOr<std::vector<double>> {
    if (seed == 21) std::raise(SIGKILL);
    return std::vector<double>{1};
  });
  EXPECT_EQ(result.failing_seed, 21u);
  EXPECT_EQ(result.failure, "its process was killed by signal 9 (Killed)");
}

TEST(CampaignTest, ASeedWithoutEndIsNamed) {
  // A leak checker, where there is one, takes its time on a busy machine.
  const int seconds = std::getenv("BRAID_SIM_SEEDS") == nullptr ? 4 : 20;
  const CampaignResult result = RunBad(
      [](uint64_t seed) -> absl::StatusOr<std::vector<double>> {
        while (seed == 18) pause();
        return std::vector<double>{1};
      },
      seconds);
  EXPECT_EQ(result.failing_seed, 18u);
  EXPECT_EQ(result.failure,
            absl::StrFormat("it did not end within %d s: events without end", seconds));
}

TEST(CampaignTest, ALeakIsNamed) {
  std::vector<std::unique_ptr<char[]>> kept;
  const CampaignResult result = RunBad([&](uint64_t) -> absl::StatusOr<std::vector<double>> {
    kept.push_back(std::make_unique<char[]>(20000));
    return std::vector<double>{1};
  });
  if (mallinfo2().uordblks == 0) {
    GTEST_SKIP() << "the sanitizer's allocator does not say what is in use";
  }
  EXPECT_NE(result.failure.find(" bytes on the heap"), std::string::npos) << result.failure;
}

}  // namespace
}  // namespace braid
