// --precision=f16: the loss's scale follows the gradients, and a step whose gradients are not
// finite changes nothing but the scale.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "tests/api/training_case.h"

namespace braid {
namespace {

using Doubles = std::vector<double>;
using Variables = std::map<std::string, Doubles>;

Variables VariablesAfter(int64_t steps, const LayoutCase& layout,
                         const std::function<void(Job&)>& record) {
  const auto run = RunTraining(
      {.layout = layout, .steps = steps, .wants_variables = true, .precision = DType::kF16},
      record);
  EXPECT_TRUE(run.ok()) << run.status();
  Variables variables;
  if (!run.ok()) return variables;
  for (const auto& [name, value] : run->variables) {
    const Array wide = value.As(DType::kF64);
    variables[name] = Doubles(wide.data<double>().begin(), wide.data<double>().end());
  }
  return variables;
}

// The gradient of each of w's elements is `slope`.
std::function<void(Job&)> Sliding(const OptimizerSpec& optimizer, double slope, NdSbp sbp,
                                  MinimizeOptions options = {}) {
  return [=](Job& job) {
    const Tensor w = Variable(
        job.graph(), {.name = "w", .shape = {4, 2}, .init = "constant", .value = 0.5, .sbp = sbp});
    const Tensor loss = Scale(ReduceSum(w), slope);
    job.Fetch("loss", loss);
    job.Minimize(loss, optimizer, options);
  };
}

// 65536 times this is infinite, 32768 times this is not.
constexpr double kSteep = 1e34;

const OptimizerSpec kOptimizers[] = {Sgd{.lr = 1e-36},
                                     Sgd{.lr = 1e-36, .momentum = 0.9},
                                     Adam{.lr = 1e-3, .weight_decay = 0.1},
                                     RmsProp{.momentum = 0.5, .centered = true},
                                     Adagrad{.initial_sum = 0.5},
                                     Lars{},
                                     Lamb{},
                                     Adafactor{}};

TEST(LossScaleTest, AStepThatOverflowsChangesTheScaleOnly) {
  for (const OptimizerSpec& optimizer : kOptimizers) {
    for (const NdSbp& sbp : {NdSbp{sbp::B}, NdSbp{sbp::S(0)}}) {
      SCOPED_TRACE(optimizer.update() + " " + sbp.ToString());
      const LayoutCase two = {.devices = {1, 1}};
      Variables before = VariablesAfter(0, two, Sliding(optimizer, kSteep, sbp));
      Variables after = VariablesAfter(1, two, Sliding(optimizer, kSteep, sbp));
      EXPECT_EQ(before["loss_scale"], Doubles{65536});
      EXPECT_EQ(after["loss_scale"], Doubles{32768});
      EXPECT_EQ(after["loss_scale.good_steps"], Doubles{0});
      after["loss_scale"] = before["loss_scale"];
      EXPECT_EQ(after, before);
    }
  }
}

TEST(LossScaleTest, TheNextStepUpdates) {
  const auto record = Sliding(Sgd{.lr = 1e-35}, kSteep, NdSbp{sbp::B});
  Variables after = VariablesAfter(3, {.devices = {2}}, record);
  EXPECT_EQ(after["loss_scale"], Doubles{32768});
  EXPECT_EQ(after["loss_scale.good_steps"], Doubles{2});
  ASSERT_EQ(after["w"].size(), 8u);
  for (double w : after["w"]) EXPECT_NEAR(w, 0.5 - 2 * 0.1, 1e-6);
}

// An Adam that had counted the step that overflowed would move by 0.744 of its rate.
TEST(LossScaleTest, AdamCountsTheStepsThatApply) {
  for (const OptimizerSpec& optimizer : {OptimizerSpec(Adam{.lr = 1e-3}), OptimizerSpec(Lamb{})}) {
    const auto steep = Sliding(optimizer, kSteep, NdSbp{sbp::B});
    const auto flat = Sliding(optimizer, kSteep / 2, NdSbp{sbp::B});
    Variables once = VariablesAfter(1, {.devices = {2}}, flat);
    Variables after = VariablesAfter(2, {.devices = {2}}, steep);
    EXPECT_EQ(after["loss_scale.applied_steps"], Doubles{1});
    EXPECT_EQ(once["loss_scale.applied_steps"], Doubles{1});
    EXPECT_EQ(after["w"], once["w"]) << optimizer.update();
  }
}

// What the program itself overwrites keeps its value, too.
TEST(LossScaleTest, AStepThatOverflowsAssignsNothing) {
  const auto record = [](Job& job) {
    const Tensor seen = Variable(job.graph(), {.name = "seen", .trainable = false});
    Assign(seen, AddScalar(seen, 1));
    Sliding(Sgd{.lr = 1e-36}, kSteep, NdSbp{sbp::B})(job);
  };
  for (const LayoutCase& layout : {LayoutCase{}, LayoutCase{.devices = {1, 1}}}) {
    EXPECT_EQ(VariablesAfter(1, layout, record)["seen"], Doubles{0});
    EXPECT_EQ(VariablesAfter(3, layout, record)["seen"], Doubles{2});
  }
}

// The first step overflows: what an average begins with is the second's.
TEST(LossScaleTest, AveragesLeaveOutAnOverflow) {
  const auto record = Sliding(Sgd{.lr = 1e-36}, kSteep, NdSbp{sbp::B}, {.ema = Ema{.decay = 0.5}});
  Variables before = VariablesAfter(1, {}, record), after = VariablesAfter(3, {}, record);
  EXPECT_EQ(before["w.ema_begun"], Doubles{0});
  EXPECT_EQ(before["w.ema"], Doubles(8, 0));
  EXPECT_EQ(after["w.ema_begun"], Doubles{1});
  for (double average : after["w.ema"]) EXPECT_NEAR(average, 0.5, 0.1);
}

// What is infinite in f16 makes statistics that are no numbers, and would for good.
TEST(LossScaleTest, RunningStatisticsOutliveAnOverflow) {
  const auto record = [](double value) {
    return [=](Job& job) {
      const Tensor x = Constant(job.graph(), value, {.shape = {8, 4}});
      const Tensor w =
          Variable(job.graph(), {.name = "w", .shape = {4, 4}, .init = "constant", .value = 1});
      const Tensor y = BatchNormLayer(MatMul(x, w), {.name = "bn"});
      const Tensor loss = ReduceSumSquare(y);
      job.Fetch("loss", loss);
      job.Minimize(loss, Sgd{.lr = 0});
    };
  };
  for (const LayoutCase& layout : {LayoutCase{}, LayoutCase{.devices = {2}}}) {
    Variables overflown = VariablesAfter(2, layout, record(7e4));
    EXPECT_EQ(overflown["bn.running_mean"], Doubles(4, 0));
    EXPECT_EQ(overflown["bn.running_variance"], Doubles(4, 1));
    Variables moved = VariablesAfter(1, layout, record(300));
    for (double mean : moved["bn.running_mean"]) EXPECT_NEAR(mean, 0.1 * 1200, 1);
  }
}

TEST(LossScaleTest, ClippingSeesGradientsWithoutTheScale) {
  const auto record = Sliding(Sgd{.lr = 1}, 2.0, NdSbp{sbp::S(0)}, {.clip_global_norm = 0.5});
  Variables after = VariablesAfter(1, {.devices = {2}}, record);
  ASSERT_EQ(after["w"].size(), 8u);
  for (double w : after["w"]) EXPECT_NEAR(w, 0.5 - 0.5 / std::sqrt(8), 1e-6);
}

TEST(LossScaleTest, GrowsAfterTwoThousandGoodSteps) {
  const auto record = Sliding(Sgd{.lr = 0}, 1.0, NdSbp{sbp::B});
  Variables before = VariablesAfter(1999, {}, record), after = VariablesAfter(2000, {}, record);
  EXPECT_EQ(before["loss_scale"], Doubles{65536});
  EXPECT_EQ(before["loss_scale.good_steps"], Doubles{1999});
  EXPECT_EQ(after["loss_scale"], Doubles{131072});
  EXPECT_EQ(after["loss_scale.good_steps"], Doubles{0});
}

TEST(LossScaleTest, NeverFallsBelowOne) {
  const auto record = Sliding(Sgd{.lr = 1}, 1e39, NdSbp{sbp::B});  // infinite in f32
  EXPECT_EQ(VariablesAfter(20, {}, record)["loss_scale"], Doubles{1});
}

// Products of f16 whose gradients are below its least number, 6e-8, without the scale.
TEST(LossScaleTest, SmallGradientsAreNotLost) {
  const auto record = [](Job& job) {
    const Tensor w =
        Variable(job.graph(), {.name = "w", .shape = {32, 32}, .init = "constant", .value = 0.5});
    const Tensor x = Constant(job.graph(), 1, {.shape = {32, 32}});
    const Tensor loss = Scale(ReduceSum(MatMul(x, w)), 1e-9);
    job.Fetch("loss", loss);
    job.Minimize(loss, Sgd{.lr = 1e6});
  };
  Variables after = VariablesAfter(1, {}, record);
  ASSERT_EQ(after["w"].size(), 1024u);
  for (double w : after["w"]) EXPECT_NEAR(w, 0.5 - 32e-9 * 1e6, 1e-4);
}

TEST(LossScaleTest, GradientsThatAreFetchedAreTheLosss) {
  const auto session =
      Session::Start({.devices = {2}, .precision = DType::kF16, .progress = Progress::kOff});
  ASSERT_TRUE(session.ok()) << session.status();
  auto job = (*session)->Compile("train", [](Job& job) {
    const Tensor w =
        Variable(job.graph(), {.name = "w", .shape = {3}, .init = "constant", .value = 0.5});
    const Tensor y = Scale(w, 3);
    job.Fetch("dy", job.GradientOf(y));
    job.Fetch("dw", job.GradientOf(w));
    job.Minimize(ReduceSumSquare(y), Sgd{.lr = 0});
  });
  ASSERT_TRUE(job.ok()) << job.status();
  const auto result = job->Run({.steps = 1});
  ASSERT_TRUE(result.ok()) << result.status();
  for (float dy : result->Last("dy").data<float>()) EXPECT_EQ(dy, 3.0f);
  for (float dw : result->Last("dw").data<float>()) EXPECT_EQ(dw, 9.0f);
}

}  // namespace
}  // namespace braid
