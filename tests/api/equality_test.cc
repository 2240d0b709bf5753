// The contract of promise 1: any layout gives the numbers of one device, up to rounding.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"
#include "tests/support/from_environment.h"

namespace braid {
namespace {

using examples::Parallel;

struct Variant {
  std::string name;
  double dropout = 0;
  int micro_batches = 1;
};
const Variant kVariants[] = {{"plain"}, {"dropout", 0.2}, {"micro-batches", 0.2, 4}};

std::function<void(Job&)> Mnist(const LayoutCase& layout, DType dtype, const Variant& variant) {
  examples::MnistOptions options = SmallMnist(layout.parallel, dtype);
  options.dropout = variant.dropout;
  options.micro_batches = variant.micro_batches;
  return [options](Job& job) { examples::TrainMnist(job, options); };
}

std::function<void(Job&)> Gpt(const LayoutCase& layout, DType dtype, const Variant& variant) {
  examples::GptOptions options = SmallGpt(layout.parallel, dtype, MakeTextFile());
  options.dropout = variant.dropout;
  options.micro_batches = variant.micro_batches;
  return [options](Job& job) { examples::TrainGpt(job, options); };
}

using LayoutRecorder = std::function<void(Job&)> (*)(const LayoutCase&, DType, const Variant&);

// Sanitizers make a step slow; BRAID_EQUALITY_STEPS caps their number.
int64_t Capped(int64_t steps) {
  return std::min(steps, static_cast<int64_t>(FromEnvironment("BRAID_EQUALITY_STEPS", steps)));
}

void ExpectSameLosses(LayoutRecorder record, DType dtype, int64_t wanted_steps, double tolerance) {
  const int64_t steps = Capped(wanted_steps);
  for (const Variant& variant : kVariants) {
    std::vector<double> reference;
    for (const LayoutCase& layout : LayoutCases()) {
      SCOPED_TRACE(variant.name + ", " + layout.name);
      const auto run =
          RunTraining({.layout = layout, .steps = steps}, record(layout, dtype, variant));
      ASSERT_TRUE(run.ok()) << run.status().message();
      ASSERT_EQ(run->losses.size(), static_cast<size_t>(steps));
      if (reference.empty()) {
        reference = run->losses;
        // It does learn, but not much in a few steps with dropout.
        if (steps >= 40) {
          EXPECT_LT(reference.back(), reference.front());
        }
        continue;
      }
      for (int64_t step = 0; step < steps; ++step) {
        ASSERT_NEAR(run->losses[step], reference[step], tolerance * std::abs(reference[step]))
            << "step " << step;
      }
    }
  }
}

TEST(EqualityTest, MnistF64LossesEqualOneDevice) {
  ExpectSameLosses(&Mnist, DType::kF64, 200, 1e-9);
}

TEST(EqualityTest, MnistF32LossesEqualOneDevice) {
  ExpectSameLosses(&Mnist, DType::kF32, 50, 1e-4);
}

TEST(EqualityTest, GptF64LossesEqualOneDevice) { ExpectSameLosses(&Gpt, DType::kF64, 200, 1e-9); }

TEST(EqualityTest, GptF32LossesEqualOneDevice) { ExpectSameLosses(&Gpt, DType::kF32, 50, 1e-4); }

// What is chosen differently for many devices, for 64 and more, is run here. 136 samples, so that
// they do not divide.
TEST(EqualityTest, SixtyFourDevicesAndMoreEqualOne) {
  const auto record = [](Parallel parallel) {
    return [parallel](Job& job) {
      examples::MnistOptions options = SmallMnist(parallel, DType::kF64);
      options.batch = 136;
      options.hidden = 80;
      examples::TrainMnist(job, options);
    };
  };
  const int64_t steps = Capped(10);
  const auto reference = RunTraining({.steps = steps}, record(Parallel::kData));
  ASSERT_TRUE(reference.ok()) << reference.status();
  EXPECT_LT(reference->losses.back(), reference->losses.front());
  for (const LayoutCase& layout :
       {LayoutCase{"data on 64", {64}, Parallel::kData},
        LayoutCase{"model on 64", {64}, Parallel::kModel},
        LayoutCase{"hybrid on 8 nodes of 8", std::vector<int>(8, 8), Parallel::kHybrid},
        LayoutCase{"data on 65 nodes", std::vector<int>(65, 1), Parallel::kData},
        LayoutCase{"model on 2 nodes of 40", {40, 40}, Parallel::kModel}}) {
    SCOPED_TRACE(layout.name);
    const auto run = RunTraining({.layout = layout, .steps = steps}, record(layout.parallel));
    ASSERT_TRUE(run.ok()) << run.status();
    for (int64_t step = 0; step < steps; ++step) {
      ASSERT_NEAR(run->losses[step], reference->losses[step],
                  1e-12 * std::abs(reference->losses[step]))
          << "step " << step;
    }
  }
}

TEST(EqualityTest, TwoRunsOfOneLayoutAreBitEqual) {
  for (const LayoutCase& layout : LayoutCases()) {
    SCOPED_TRACE(layout.name);
    const auto record = Mnist(layout, DType::kF32, {"both", 0.2, 2});
    const TrainingOptions options{.layout = layout, .steps = 20, .wants_variables = true};
    const auto first = RunTraining(options, record);
    const auto second = RunTraining(options, record);
    ASSERT_TRUE(first.ok()) << first.status().message();
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_EQ(first->losses, second->losses);
    ASSERT_EQ(first->variables.size(), second->variables.size());
    for (size_t i = 0; i < first->variables.size(); ++i) {
      const Array& a = first->variables[i].second;
      const Array& b = second->variables[i].second;
      EXPECT_EQ(std::memcmp(a.bytes(), b.bytes(), a.num_bytes()), 0) << first->variables[i].first;
    }
  }
}

// Every gradient of one step from the weights that one device reached.
TEST(EqualityTest, GradientsFromTheSameWeightsEqualOneDevice) {
  const auto record = [](const LayoutCase& layout) {
    return [layout](Job& job) {
      examples::MnistOptions options = SmallMnist(layout.parallel, DType::kF32);
      options.dropout = 0.2;
      examples::TrainMnist(job, options);
      // The gradients of every weight, under its name.
      std::vector<Tensor> variables;
      for (const Op& op : job.graph().ops()) {
        if (op.type == "variable") variables.emplace_back(&job.graph(), op.outputs[0]);
      }
      for (const Tensor& variable : variables) {
        job.Fetch("d " + job.graph().producer(variable.id()).name, job.GradientOf(variable));
      }
    };
  };
  const LayoutCase one = LayoutCases()[0];
  auto start = Session::Start({.seed = 3, .progress = Progress::kOff});
  ASSERT_TRUE(start.ok()) << start.status().message();
  auto train = (*start)->Compile("train", record(one));
  ASSERT_TRUE(train.ok()) << train.status().message();
  for (const int64_t steps : {1, 50, 50, 100}) {
    std::map<std::string, Array> weights;
    for (const std::string& name : (*start)->variables()) {
      auto value = (*start)->Get(name);
      ASSERT_TRUE(value.ok()) << value.status().message();
      weights.emplace(name, *std::move(value));
    }
    const auto reference = train->Run({.steps = steps});
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    const double loss = reference->Scalars("loss")[0];
    for (const LayoutCase& layout : LayoutCases()) {
      if (layout.name == one.name) continue;
      SCOPED_TRACE(layout.name);
      auto session =
          Session::Start({.devices = layout.devices, .seed = 3, .progress = Progress::kOff});
      ASSERT_TRUE(session.ok()) << session.status().message();
      auto job = (*session)->Compile("train", record(layout));
      ASSERT_TRUE(job.ok()) << job.status().message();
      job->SetStep(train->step() - steps);
      for (const auto& [name, value] : weights) {
        const absl::Status set = (*session)->Set(name, value);
        ASSERT_TRUE(set.ok()) << set.message();
      }
      const auto result = job->Run({.steps = 1});
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_NEAR(result->Scalars("loss")[0], loss, 1e-5 * std::abs(loss));
      for (const auto& [name, value] : weights) {
        if (name.find("adam") != std::string::npos) continue;
        const auto expected = reference->Values("d " + name)[0].As(DType::kF64);
        const auto actual = result->Last("d " + name).As(DType::kF64);
        double norm = 0, difference = 0;
        for (int64_t i = 0; i < expected.num_elements(); ++i) {
          const double e = expected.data<double>()[i], a = actual.data<double>()[i];
          norm += e * e;
          difference += (e - a) * (e - a);
        }
        EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace braid
