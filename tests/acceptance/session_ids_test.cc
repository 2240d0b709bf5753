// A session that lives long: every Get is a job of its own, and its numbers never come round.
#include <braid/braid.h>

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"

namespace braid {
namespace {

TEST(SessionIds, MoreThanSixteenBitsOfJobs) {
  auto started = Session::Start({.devices = {1, 1}, .progress = Progress::kOff});
  ASSERT_TRUE(started.ok()) << started.status();
  Session& session = **started;
  const auto job = session.Compile("train", [](Job& job) {
    const Tensor x = Constant(job.graph(), 1.0, {.shape = {2, 3}});
    const Tensor loss = Mean(Linear(x, 1, {.name = "fc"}));
    job.Minimize(loss, Sgd{.lr = 0.125});
    job.Fetch("loss", loss);
  });
  ASSERT_TRUE(job.ok()) << job.status();
  const auto before = session.Get("fc.weight");
  ASSERT_TRUE(before.ok()) << before.status();
  for (int64_t i = 0; i < (int64_t{1} << 16); ++i) {
    const auto got = session.Get("fc.weight");
    ASSERT_TRUE(got.ok()) << "after " << i << ": " << got.status();
    ASSERT_EQ(got->shape(), before->shape());
  }
  // The job that was there all the time still runs, and another one after it.
  CompiledJob train = *job;
  ASSERT_TRUE(train.Run({.steps = 1}).ok());
  const auto after = session.Get("fc.weight");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NEAR(after->data<float>()[0], before->data<float>()[0] - 0.125, 1e-6);
}

}  // namespace
}  // namespace braid
