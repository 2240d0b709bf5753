// --check_numerics: the first operator that makes a NaN or an infinity has a name.

#include <braid/braid.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"
#include "tests/support/device_mix.h"
#include "tests/support/lagging_device.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Fleet {
  std::vector<int> devices = {1};
  DeviceMix mix = DeviceMix::kCpu;
};

// What ends a run whose input x f32 [4, 3] has these numbers; `record` gets it split by rows.
std::string EndOf(const std::vector<float>& x, const std::function<void(Job&, Tensor)>& record,
                  const Fleet& fleet = {}) {
  SessionOptions options{.devices = fleet.devices, .check_numerics = true};
  options.node_kinds = NodeKindsOf(fleet.mix, fleet.devices.size());
  options.device_kinds = KindsWithLagging();
  const auto session = StartOrDie(std::move(options));
  auto job = session->Compile("job", [&](Job& job) {
    record(job, ToSbp(job.Input("x", {4, 3}), sbp::S(0)));
  });
  if (!job.ok()) return std::string(job.status().message());
  const auto result = job->Run({.steps = 3, .feeds = {{"x", Array::FromVector<float>({4, 3}, x)}}});
  return std::string(result.status().message());
}

const std::vector<float> kNumbers = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

// Its line, the step, where, and what it was given: on whatever devices, and though what follows it
// would only hand it on.
TEST(NumericsTest, TheFirstOperatorHasAName) {
  const auto record = [](Job& job, Tensor x) {
    // In step 1, the logarithm of 8 - 8 - 1 at [2, 1].
    const Tensor step = Cast(Step(job.graph()), DType::kF32);
    const Tensor zero = Cast(Equal(x, Constant(job.graph(), 8)), DType::kF32);
    const Tensor y = Log(x - zero * (step * 9));
    job.Fetch("y", Sum(Exp(y) * 2));
  };
  for (const Fleet& fleet : {Fleet{}, Fleet{.devices = {2}}, Fleet{.devices = {2, 2}},
                             Fleet{.devices = {2}, .mix = DeviceMix::kLagging},
                             Fleet{.devices = {1, 1}, .mix = DeviceMix::kMixed}}) {
    EXPECT_THAT(EndOf(kNumbers, record, fleet),
                AllOf(HasSubstr("log 'log': it makes NaN in step 1: output 0, f32["),
                      HasSubstr("with 1 NaN, the first at [2, 1]"), HasSubstr("; input 0, f32["),
                      HasSubstr("from -1 to "), HasSubstr("numerics_test.cc:")))
        << NameOf(fleet.mix);
  }
}

TEST(NumericsTest, InfinitiesAndWhatComesInFromOutside) {
  EXPECT_THAT(
      EndOf(kNumbers, [](Job& job, Tensor x) { job.Fetch("y", Sum(Exp(x * 10))); }),
      AllOf(HasSubstr("exp 'exp': it makes an infinity in step 0"),
            HasSubstr("with 4 infinite, the first at [2, 2]"), HasSubstr("from 10 to 120")));
  std::vector<float> with_nan = kNumbers;
  with_nan[5] = kNan;
  EXPECT_THAT(
      EndOf(with_nan,
            [](Job& job, Tensor x) {
              job.Minimize(Mean(Linear(x, 2, {.name = "fc", .bias = false})), Sgd{.lr = 1});
            }),
      AllOf(HasSubstr("sgd_update 'fc.weight.sgd_update': it takes NaN to a variable that no "
                      "operator made"),
            HasSubstr("before input 1, f32[0:3, 0:2], "), HasSubstr("first at [2, 0]")));
}

// An update has no outputs: what it did to its variable counts.
TEST(NumericsTest, UpdatesAreLookedAt) {
  EXPECT_THAT(
      EndOf(kNumbers,
            [](Job& job, Tensor x) {
              const Tensor w = Variable(
                  job.graph(), {.name = "w", .shape = {3}, .init = "constant", .value = 1});
              job.Minimize(Mean(x * w), Sgd{.lr = 3e38});
            }),
      AllOf(HasSubstr("sgd_update 'w.sgd_update': it makes an infinity in step 0: afterwards "
                      "input 0, f32[0:3], with "),
            HasSubstr("before input 0, f32[0:3], from 1 to 1"), HasSubstr("numerics_test.cc:")));
}

// Masks of minus infinity are meant, and what was NaN and is replaced is none any more.
TEST(NumericsTest, WhatIsMeantPasses) {
  std::vector<float> with_nan = kNumbers;
  with_nan[5] = kNan;
  EXPECT_EQ(EndOf(with_nan,
                  [](Job& job, Tensor x) {
                    const Tensor zeros = Constant(job.graph(), 0, {.shape = {4, 3}});
                    const Tensor mask = Constant(job.graph(), -kInfinity, {.shape = {4, 3}});
                    const Tensor known = Where(NotEqual(x, x), zeros, x);
                    job.Fetch("y", Sum(Softmax(Where(Less(known, zeros + 2), mask, known))));
                  }),
            "");
}

TEST(NumericsTest, TheSameBits) {
  std::vector<std::vector<double>> losses;
  for (const bool checks : {false, true}) {
    const auto session = StartOrDie({.devices = {2}, .seed = 1, .check_numerics = checks});
    auto job = session->Compile("train", [](Job& job) {
      examples::TrainMnist(job, SmallMnist(examples::Parallel::kData, DType::kF32));
    });
    ASSERT_TRUE(job.ok()) << job.status().message();
    const auto result = job->Run({.steps = 10});
    ASSERT_TRUE(result.ok()) << result.status().message();
    losses.push_back(result->Scalars("loss"));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(NumericsTest, NotWithALossScale) {
  const auto session = Session::Start({.precision = DType::kF16, .check_numerics = true});
  EXPECT_THAT(std::string(session.status().message()),
              AllOf(HasSubstr("--check_numerics"), HasSubstr("--precision=f16")));
}

}  // namespace
}  // namespace braid
