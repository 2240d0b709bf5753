// The mnist example in f32, at full size and on real digits, under every layout against one device.
//
// Layouts order sums differently, and f32 rounds each order differently. Rounding alone stays near
// 1e-7. But a ReLU whose argument lies that near zero may flip: its sample's gradient appears or
// goes, and Adam moves rarely used weights by as much as others, so that from this step on the
// curves part by far more. This happens on one device as well, if no more than the order of the
// pixels changes. Therefore:
// - Losses of 50 steps are within 1e-4. A run takes up one device's weights again after a step in
//   which a ReLU flipped.
// - Restarted from one device's weights at several steps, the loss is within 1e-5, and so is every
//   gradient, of its norm. A gradient that a flip changed is compared in one of the next steps.
// - A flip counts as one by rounding only if both runs' arguments of all ReLUs are within 1e-5 of
//   their norm; anything else that makes them differ fails.
// Skips without $BRAID_TEST_DATA/mnist.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

struct Variant {
  std::string name;
  double dropout = 0;
  int micro_batches = 1;
};

// What a step fetched, and by name what it had before the ReLUs and as gradients.
struct Step {
  double loss = 0;
  std::map<std::string, Array> relu_inputs, gradients;
};
using Variables = std::map<std::string, Array>;

// One layout's session, stepped by hand.
class Training {
 public:
  static absl::StatusOr<std::unique_ptr<Training>> Start(const LayoutCase& layout,
                                                         const Variant& variant,
                                                         const DatasetSpec& digits) {
    auto training = std::make_unique<Training>();
    BRAID_ASSIGN_OR_RETURN(training->session_,
                           Session::Start({.devices = layout.devices, .progress = Progress::kOff}));
    examples::MnistOptions options;
    options.parallel = layout.parallel;
    options.train = digits;
    options.dropout = variant.dropout;
    options.micro_batches = variant.micro_batches;
    options.steps = 250;
    const auto record = [&](Job& job) { training->Record(job, options); };
    BRAID_ASSIGN_OR_RETURN(training->job_, training->session_->Compile("train", record));
    return training;
  }

  absl::StatusOr<Step> Run() {
    BRAID_ASSIGN_OR_RETURN(const RunResult result, job_->Run());
    Step step;
    step.loss = result.Scalars("loss")[0];
    for (const std::string& name : relu_inputs_) step.relu_inputs[name] = result.Last(name);
    for (const std::string& name : gradients_) step.gradients[name] = result.Last(name);
    return step;
  }
  absl::Status Skip(int64_t steps) {
    return steps > 0 ? job_->Run({.steps = steps}).status() : absl::OkStatus();
  }
  int64_t step() const { return job_->step(); }

  absl::StatusOr<Variables> Get() {
    Variables variables;
    for (const std::string& name : session_->variables()) {
      BRAID_ASSIGN_OR_RETURN(variables[name], session_->Get(name));
    }
    return variables;
  }
  absl::Status Restart(int64_t step, const Variables& variables) {
    for (const auto& [name, value] : variables) BRAID_RETURN_IF_ERROR(session_->Set(name, value));
    job_->SetStep(step);
    return absl::OkStatus();
  }

 private:
  void Record(Job& job, const examples::MnistOptions& options) {
    examples::TrainMnist(job, options);
    const auto fetch = [&](std::string name, Tensor value, std::vector<std::string>& names) {
      names.push_back(name);
      job.Fetch(std::move(name), value);
    };
    std::vector<Tensor> inputs, variables;
    for (const Op& op : job.graph().ops()) {
      if (op.type == "relu") inputs.emplace_back(&job.graph(), op.inputs[0]);
      if (op.type == "variable") variables.emplace_back(&job.graph(), op.outputs[0]);
    }
    for (const Tensor& input : inputs) {
      fetch(absl::StrFormat("input of relu %d", relu_inputs_.size() + 1), input, relu_inputs_);
    }
    for (const Tensor& variable : variables) {
      fetch("d " + job.graph().producer(variable.id()).name, job.GradientOf(variable), gradients_);
    }
  }

  std::unique_ptr<Session> session_;
  std::optional<CompiledJob> job_;
  std::vector<std::string> relu_inputs_, gradients_;
};

double RelativeDifference(double actual, double expected) {
  return std::abs(actual - expected) / std::abs(expected);
}

// The largest |actual - expected| / |expected| of the arrays, by their norms.
double WorstDifference(const std::map<std::string, Array>& actual,
                       const std::map<std::string, Array>& expected) {
  double worst = 0;
  for (const auto& [name, array] : expected) {
    const std::span<const float> e = array.data<float>(), a = actual.at(name).data<float>();
    double norm = 0, difference = 0;
    for (size_t i = 0; i < e.size(); ++i) {
      norm += double{e[i]} * e[i];
      difference += (double{a[i]} - e[i]) * (double{a[i]} - e[i]);
    }
    const double relative = std::sqrt(difference / norm);
    if (!(relative <= worst)) worst = relative;  // a NaN too
  }
  return worst;
}

int64_t CountFlips(const Step& actual, const Step& expected) {
  int64_t flips = 0;
  for (const auto& [name, array] : expected.relu_inputs) {
    const std::span<const float> e = array.data<float>();
    const std::span<const float> a = actual.relu_inputs.at(name).data<float>();
    for (size_t i = 0; i < e.size(); ++i) flips += (a[i] > 0) != (e[i] > 0);
  }
  return flips;
}

// What all layouts of a variant showed; printed, so that a look tells how far the bounds are.
struct Summary {
  double loss = 0, relu_input = 0;
  std::optional<double> gradient;
  int64_t steps = 0, steps_with_flips = 0;

  void Print(const std::string& title) const {
    std::cout << absl::StrFormat("%s: worst loss %.1e, ReLU inputs %.1e", title, loss, relu_input);
    if (gradient.has_value()) std::cout << absl::StrFormat(", gradient %.1e", *gradient);
    std::cout << absl::StrFormat("; a ReLU flipped in %d of %d steps\n", steps_with_flips, steps);
  }
};

// Every layout but one device itself.
std::vector<LayoutCase> OtherLayouts() {
  std::vector<LayoutCase> layouts = LayoutCases();
  layouts.erase(layouts.begin());
  return layouts;
}

class MnistF32EqualityTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const char* data = std::getenv("BRAID_TEST_DATA");
    const std::string folder = std::string(data == nullptr ? "" : data) + "/mnist";
    if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no $BRAID_TEST_DATA/mnist";
    digits_ = Mnist(folder + "/t10k", {.count = 9000});
  }
  absl::StatusOr<std::unique_ptr<Training>> Start(const LayoutCase& layout) const {
    return Training::Start(layout, GetParam(), digits_);
  }
  // Checks what holds with and without a flip; whether there was one.
  bool ExpectSameUpToFlips(const Step& actual, const Step& expected, double loss_bound) {
    const double loss = RelativeDifference(actual.loss, expected.loss);
    const double relu_input = WorstDifference(actual.relu_inputs, expected.relu_inputs);
    EXPECT_LE(loss, loss_bound);
    EXPECT_LE(relu_input, 1e-5);
    summary_.loss = std::max(summary_.loss, loss);
    summary_.relu_input = std::max(summary_.relu_input, relu_input);
    const bool has_flip = CountFlips(actual, expected) > 0;
    ++summary_.steps;
    summary_.steps_with_flips += has_flip;
    return has_flip;
  }

  DatasetSpec digits_;
  Summary summary_;
};

TEST_P(MnistF32EqualityTest, FiftyLosses) {
  constexpr int64_t kSteps = 50;
  for (const LayoutCase& layout : OtherLayouts()) {
    SCOPED_TRACE(layout.name);
    auto reference = Start(LayoutCases()[0]), training = Start(layout);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    ASSERT_TRUE(training.ok()) << training.status().message();
    for (int64_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(absl::StrFormat("step %d", step));
      const auto expected = (*reference)->Run(), actual = (*training)->Run();
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      ASSERT_TRUE(actual.ok()) << actual.status().message();
      if (!ExpectSameUpToFlips(*actual, *expected, 1e-4)) continue;
      const auto variables = (*reference)->Get();
      ASSERT_TRUE(variables.ok()) << variables.status().message();
      const absl::Status status = (*training)->Restart(step + 1, *variables);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  summary_.Print(GetParam().name + ", 50 steps");
}

TEST_P(MnistF32EqualityTest, GradientsFromOneDevicesWeights) {
  // One device's variables before a step, and what the step gave.
  struct Moment {
    int64_t step = 0;
    Variables variables;
    Step result;
  };
  constexpr int64_t kTries = 3;  // consecutive steps, of which one has no flip
  std::vector<std::vector<Moment>> places;
  auto reference = Start(LayoutCases()[0]);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  for (const int64_t first : {0, 10, 25, 50, 100, 200}) {
    const absl::Status skipped = (*reference)->Skip(first - (*reference)->step());
    ASSERT_TRUE(skipped.ok()) << skipped.message();
    std::vector<Moment>& moments = places.emplace_back();
    for (int64_t step = first; step < first + kTries; ++step) {
      auto variables = (*reference)->Get();
      ASSERT_TRUE(variables.ok()) << variables.status().message();
      auto result = (*reference)->Run();
      ASSERT_TRUE(result.ok()) << result.status().message();
      moments.push_back({step, *std::move(variables), *std::move(result)});
    }
  }
  for (const LayoutCase& layout : OtherLayouts()) {
    SCOPED_TRACE(layout.name);
    auto training = Start(layout);
    ASSERT_TRUE(training.ok()) << training.status().message();
    for (const std::vector<Moment>& moments : places) {
      bool has_compared = false;
      for (const Moment& moment : moments) {
        SCOPED_TRACE(absl::StrFormat("step %d", moment.step));
        const absl::Status restarted = (*training)->Restart(moment.step, moment.variables);
        ASSERT_TRUE(restarted.ok()) << restarted.message();
        const auto actual = (*training)->Run();
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        if (ExpectSameUpToFlips(*actual, moment.result, 1e-5)) continue;
        const double gradient = WorstDifference(actual->gradients, moment.result.gradients);
        EXPECT_LE(gradient, 1e-5);
        summary_.gradient = std::max(summary_.gradient.value_or(0), gradient);
        has_compared = true;
        break;
      }
      EXPECT_TRUE(has_compared) << "a ReLU flips in every step from " << moments[0].step;
    }
  }
  summary_.Print(GetParam().name + ", from one device's weights");
}

INSTANTIATE_TEST_SUITE_P(Variants, MnistF32EqualityTest,
                         testing::Values(Variant{"plain"}, Variant{"dropout", 0.2},
                                         Variant{"micro_batches", 0.2, 4}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid
