// What lasts is told after the limit and again after as long; what ends in time is not.
#include "runtime/reports/program_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace braid {
namespace {

class ProgramWatchTest : public ::testing::Test {
 protected:
  ~ProgramWatchTest() override { reactor_.reset(); }
  void Pass(Nanoseconds time) {
    auto over = environment_->MakeEvent();
    reactor_->Post([&] { reactor_->RunAfter(time, [&] { over->Set(); }); });
    ASSERT_EQ(environment_->Await(*over, 100 * kSecond), absl::OkStatus());
  }
  // How long what was told of had lasted, in whole seconds.
  std::vector<Nanoseconds> Seconds() const {
    std::vector<Nanoseconds> seconds;
    for (const Nanoseconds lasted : told_) seconds.push_back(lasted / kSecond);
    return seconds;
  }

  std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(1);
  std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("watch");
  std::vector<Nanoseconds> told_;
  ProgramWatch watch_{reactor_.get(), 2 * kSecond,
                      [this](Nanoseconds lasted) { told_.push_back(lasted); }};
};

TEST_F(ProgramWatchTest, WhatLastsIsToldAgainAndAgain) {
  watch_.Begin("opening the data of read 'x' (a.cc:1)");
  Pass(kSecond);
  EXPECT_EQ(Seconds(), std::vector<Nanoseconds>{});
  ASSERT_TRUE(watch_.doing().has_value());
  EXPECT_EQ(watch_.doing()->what, "opening the data of read 'x' (a.cc:1)");
  Pass(6 * kSecond);
  EXPECT_EQ(Seconds(), (std::vector<Nanoseconds>{2, 4, 6}));
  watch_.End();
  EXPECT_FALSE(watch_.doing().has_value());
  Pass(10 * kSecond);
  EXPECT_EQ(told_.size(), 3u);
}

TEST_F(ProgramWatchTest, WhatEndsInTimeIsNotTold) {
  for (int i = 0; i < 5; ++i) {
    watch_.Begin("a");
    Pass(kSecond);
    watch_.End();
  }
  // Another one's time does not count.
  watch_.Begin("b");
  Pass(kSecond);
  watch_.End();
  Pass(10 * kSecond);
  EXPECT_TRUE(told_.empty());
}

TEST_F(ProgramWatchTest, WithoutALimitNothingIsTold) {
  ProgramWatch silent(reactor_.get(), 0, [](Nanoseconds) { ADD_FAILURE(); });
  silent.Begin("a");
  Pass(50 * kSecond);
  EXPECT_TRUE(silent.doing().has_value());
  reactor_.reset();
}

}  // namespace
}  // namespace braid
