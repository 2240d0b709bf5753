// Whole models against references written out by hand in f64, and against themselves on 2x2
// devices.
//
// f32 can only follow f64 this closely where rounding is not blown up. ReLUs and max pooling blow
// it up next to their kinks: a value that rounds to the other side moves a gradient by far more
// than the rounding. So the sizes here are small enough that in 50 steps no value comes nearer to a
// kink than kMargin of the largest beside it, ten times what f32 loses there; the references
// measure that by themselves, in f64, and the test says so if it were not true any more. Adam
// divides by the gradient's size, so where a gradient is nothing but rounding it makes a full step
// of it: the bias of an attention's keys, whose gradient is 0 by softmax's invariance, is therefore
// not compared (it has no effect on any loss).
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/reference/training.h"

namespace braid {
namespace {

constexpr int64_t kSteps = 50;
constexpr double kMargin = 1e-6;

std::vector<double> ToDoubles(const Array& array) {
  const Array wide = array.As(DType::kF64);
  const auto data = wide.data<double>();
  return {data.begin(), data.end()};
}

bool HasGradientOfRoundingOnly(const std::string& name) {
  return name.find("attn.k.bias") != std::string::npos;
}

double NormOf(const std::vector<double>& x) {
  double sum = 0;
  for (double a : x) sum += a * a;
  return std::sqrt(sum);
}

// |a - b| / |b|.
double Distance(std::vector<double> a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) a[i] -= b[i];
  return NormOf(a) / std::max(NormOf(b), 1e-300);
}

struct Bounds {
  double loss = 0, parameters = 0;  // relative
};

// kSteps of the job beside the reference, from the session's own initial values.
void ExpectFollowsReference(const ReferenceCase& model, const TrainingSessionOptions& options,
                            const Bounds& bounds) {
  auto training = StartTraining(model, options);
  ASSERT_TRUE(training.ok()) << training.status().message();
  const auto value_of = [&](const std::string& name) {
    const auto value = training->session->Get(name);
    EXPECT_TRUE(value.ok()) << value.status().message();
    return value.ok() ? ToDoubles(*value) : std::vector<double>();
  };
  const auto reference = model.make_model(value_of);
  double first = 0, last = 0, worst = 0;  // of losses: sums over the batches' first and last turn
  for (int64_t step = 0; step < kSteps; ++step) {
    const double expected = reference->Train(BatchOf(model, step));
    const auto result = training->Step(step);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const double loss = result->Scalars("loss")[0];
    worst = std::max(worst, std::abs(loss - expected) / std::abs(expected));
    ASSERT_NEAR(loss, expected, bounds.loss * std::abs(expected)) << "step " << step;
    if (step < kBatches) first += expected;
    if (step >= kSteps - kBatches) last += expected;
  }
  EXPECT_LT(last, first);  // it does learn
  if (options.dtype == DType::kF32) {
    EXPECT_GT(reference->margin().smallest, kMargin);
  }
  double worst_parameter = 0;
  for (const auto* parameters : {&reference->parameters(), &reference->statistics()}) {
    for (const auto& [name, parameter] : *parameters) {
      if (HasGradientOfRoundingOnly(name)) continue;
      const double distance = Distance(value_of(name), parameter.value);
      EXPECT_LE(distance, bounds.parameters) << name;
      worst_parameter = std::max(worst_parameter, distance);
    }
  }
  std::cout << model.name << " " << ToString(options.dtype) << ": loss " << first / kBatches
            << " to " << last / kBatches << ", worst relative difference " << worst
            << ", of a parameter " << worst_parameter << ", margin " << reference->margin().smallest
            << "\n";
}

std::vector<std::pair<std::string, TrainingSessionOptions>> Layouts(DType dtype) {
  return {{"one device", {.dtype = dtype}},
          {"data on 2x2", {.dtype = dtype, .devices = {2, 2}}},
          {"hybrid on 2x2", {.dtype = dtype, .devices = {2, 2}, .spread = Spread::kHybrid}},
          {"pipeline on 2x2", {.dtype = dtype, .devices = {2, 2}, .spread = Spread::kPipeline}}};
}

void ExpectAllFollow(DType dtype, const Bounds& bounds) {
  for (const ReferenceCase& model : ReferenceCases()) {
    for (const auto& [name, options] : Layouts(dtype)) {
      SCOPED_TRACE(model.name + ", " + name);
      ExpectFollowsReference(model, options, bounds);
    }
  }
}

TEST(ReferenceTest, F64) { ExpectAllFollow(DType::kF64, {.loss = 1e-9, .parameters = 1e-9}); }

TEST(ReferenceTest, F32) { ExpectAllFollow(DType::kF32, {.loss = 1e-5, .parameters = 1e-5}); }

// The rest of the contract between layouts: 200 losses in f64, and in f32 from one device's weights
// the loss and every gradient.
TEST(LayoutEqualityTest, F64LossesOf200Steps) {
  for (const ReferenceCase& model : ReferenceCases()) {
    std::vector<double> reference;
    for (const auto& [name, options] : Layouts(DType::kF64)) {
      SCOPED_TRACE(model.name + ", " + name);
      auto training = StartTraining(model, options);
      ASSERT_TRUE(training.ok()) << training.status().message();
      for (int64_t step = 0; step < 200; ++step) {
        const auto result = training->Step(step);
        ASSERT_TRUE(result.ok()) << result.status().message();
        const double loss = result->Scalars("loss")[0];
        if (static_cast<int64_t>(reference.size()) <= step) reference.push_back(loss);
        ASSERT_NEAR(loss, reference[step], 1e-9 * std::abs(reference[step])) << "step " << step;
      }
    }
  }
}

TEST(LayoutEqualityTest, F32LossesAndGradientsFromEqualWeights) {
  for (const ReferenceCase& model : ReferenceCases()) {
    std::vector<std::string> names;
    {
      auto training = StartTraining(model, {.dtype = DType::kF32});
      ASSERT_TRUE(training.ok()) << training.status().message();
      const auto reference = model.make_model(
          [&](const std::string& name) { return ToDoubles(*training->session->Get(name)); });
      for (const auto& [name, parameter] : reference->parameters()) names.push_back(name);
    }
    std::vector<std::pair<std::string, TrainingSession>> trainings;
    for (auto& [name, options] : Layouts(DType::kF32)) {
      options.gradients = names;
      auto training = StartTraining(model, options);
      ASSERT_TRUE(training.ok()) << training.status().message();
      trainings.emplace_back(name, *std::move(training));
    }
    TrainingSession& one = trainings[0].second;
    for (int64_t step = 0; step <= 200; ++step) {
      const bool is_compared = step == 0 || step == 50 || step == 100 || step == 200;
      if (is_compared) {
        for (size_t i = 1; i < trainings.size(); ++i) {
          for (const std::string& name : one.session->variables()) {
            ASSERT_TRUE(trainings[i].second.session->Set(name, *one.session->Get(name)).ok());
          }
        }
      }
      const auto expected = one.Step(step);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      if (!is_compared) continue;
      for (size_t i = 1; i < trainings.size(); ++i) {
        SCOPED_TRACE(model.name + ", " + trainings[i].first + ", step " + std::to_string(step));
        trainings[i].second.job->SetStep(step);
        const auto result = trainings[i].second.Step(step);
        ASSERT_TRUE(result.ok()) << result.status().message();
        const double loss = expected->Scalars("loss")[0];
        EXPECT_NEAR(result->Scalars("loss")[0], loss, 1e-5 * std::abs(loss));
        for (const std::string& name : names) {
          if (HasGradientOfRoundingOnly(name)) continue;
          EXPECT_LE(Distance(ToDoubles(result->Last("gradient " + name)),
                             ToDoubles(expected->Last("gradient " + name))),
                    1e-5)
              << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
