// The loop of the examples: how its rounds are cut, what it evaluates, what it refuses.

#include "examples/training.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace braid {
namespace {

using examples::Rounds;
using testing::ElementsAre;
using testing::HasSubstr;

// A job whose one number falls from step to step.
void FetchFalling(Job& job) {
  job.Fetch("value", WarmupCosine(job.graph(), {.peak = 1, .steps = 100}));
}

class RoundsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto session = Session::Start({.progress = Progress::kOff});
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
  }
  absl::Status Train(const Rounds& rounds) {
    BRAID_ASSIGN_OR_RETURN(auto train, session_->Compile("train", FetchFalling));
    BRAID_ASSIGN_OR_RETURN(auto evaluate, session_->Compile("evaluate", FetchFalling));
    return examples::TrainInRounds(
        train, evaluate, rounds,
        [this](int64_t done, const RunResult& trained, const RunResult& evaluated) {
          done_.push_back(done);
          trained_.push_back(trained.Scalars("value").size());
          evaluated_.push_back(evaluated.Scalars("value"));
        });
  }

  std::unique_ptr<Session> session_;
  std::vector<int64_t> done_;
  std::vector<size_t> trained_;
  std::vector<std::vector<double>> evaluated_;
};

TEST_F(RoundsTest, TheLastRoundIsWhatIsLeft) {
  const absl::Status status = Train({.steps = 7, .report_every = 3, .evaluation_steps = 2});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(done_, ElementsAre(3, 6, 7));
  EXPECT_THAT(trained_, ElementsAre(3, 3, 1));
}

TEST_F(RoundsTest, EveryEvaluationTakesTheSameSteps) {
  const absl::Status status = Train({.steps = 2, .report_every = 1, .evaluation_steps = 2});
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(evaluated_.size(), 2u);
  EXPECT_GT(evaluated_[0][0], evaluated_[0][1]);
  EXPECT_EQ(evaluated_[0], evaluated_[1]);
}

TEST_F(RoundsTest, LessThanAStepIsRefusedByItsFlag) {
  EXPECT_THAT(std::string(Train({.steps = 0, .report_every = 1}).message()),
              HasSubstr("--steps=0; at least 1 was expected"));
  EXPECT_THAT(done_, ElementsAre());
}

TEST_F(RoundsTest, RoundsOfLessThanAStepAreRefusedByTheirFlag) {
  EXPECT_THAT(std::string(Train({.steps = 5, .report_every = -2}).message()),
              HasSubstr("--report_every=-2; at least 1 was expected"));
  EXPECT_THAT(done_, ElementsAre());
}

}  // namespace
}  // namespace braid
