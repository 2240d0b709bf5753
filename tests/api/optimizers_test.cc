// Every optimizer against its formulas written out here, on one device and on variables that are
// split; schedules against theirs.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "gtest/gtest.h"
#include "tests/api/training_case.h"

namespace braid {
namespace {

constexpr int kSteps = 5;
constexpr double kLr = 0.0625;  // the same number in f32

using Doubles = std::vector<double>;

// Pulls w [6, 4] towards 24 numbers: the gradient is w - them. Scaled by `size`.
Doubles Targets() {
  Doubles targets;
  for (int i = 0; i < 24; ++i) targets.push_back(0.25 * i - 1);
  return targets;
}

std::function<void(Job&)> Pulling(const OptimizerSpec& optimizer, NdSbp sbp,
                                  DType dtype = DType::kF64) {
  return [=](Job& job) {
    const Tensor w = Variable(job.graph(), {.name = "w",
                                            .dtype = dtype,
                                            .shape = {6, 4},
                                            .init = "constant",
                                            .value = 0.5,
                                            .sbp = sbp});
    const Tensor numbers = Reshape(Cast(Iota(job.graph(), {DType::kF32, {24}}), dtype), {6, 4});
    const Tensor away = Sub(w, AddScalar(Scale(numbers, 0.25), -1));
    const Tensor loss = Scale(ReduceSumSquare(away), 0.5);
    job.Fetch("loss", loss);
    job.Minimize(loss, optimizer);
  };
}

Doubles WeightsAfter(const LayoutCase& layout, const std::function<void(Job&)>& record) {
  const auto run =
      RunTraining({.layout = layout, .steps = kSteps, .wants_variables = true}, record);
  EXPECT_TRUE(run.ok()) << run.status();
  if (!run.ok()) return {};
  for (const auto& [name, value] : run->variables) {
    if (name != "w") continue;
    const Array wide = value.As(DType::kF64);
    return {wide.data<double>().begin(), wide.data<double>().end()};
  }
  ADD_FAILURE() << "no w";
  return {};
}

double Norm(const Doubles& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

struct States {
  Doubles a = Doubles(24, 0.0), b = Doubles(24, 0.0), c = Doubles(24, 0.0);
};
// One step: changes w.
using StepFunction = std::function<void(Doubles& w, const Doubles& g, States& states, int t)>;

Doubles Expected(const StepFunction& step) {
  Doubles w(24, 0.5);
  States states;
  for (int t = 0; t < kSteps; ++t) {
    Doubles g = Targets();
    for (int i = 0; i < 24; ++i) g[i] = w[i] - g[i];
    step(w, g, states, t);
  }
  return w;
}

void Check(const OptimizerSpec& optimizer, const StepFunction& step) {
  const Doubles expected = Expected(step);
  struct Split {
    std::vector<int> devices;
    NdSbp sbp;
  };
  for (const Split& split : {Split{{1}, NdSbp({sbp::B})}, Split{{2}, NdSbp({sbp::S(0)})},
                             Split{{4}, NdSbp({sbp::S(0)})}, Split{{3}, NdSbp({sbp::S(1)})},
                             Split{{1, 1}, NdSbp({sbp::S(1)})}, Split{{2}, NdSbp({sbp::B})}}) {
    const LayoutCase layout = {.name = "", .devices = split.devices};
    const Doubles actual = WeightsAfter(layout, Pulling(optimizer, split.sbp));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-12 * (1 + std::abs(expected[i])))
          << "element " << i << ", " << split.sbp.ToString() << " over " << split.devices.size()
          << " nodes";
    }
  }
}

TEST(OptimizersTest, RmsProp) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.75}) {
      SCOPED_TRACE(testing::Message() << centered << " " << momentum);
      Check(RmsProp{.lr = kLr,
                    .alpha = 0.9,
                    .epsilon = 1e-3,
                    .momentum = momentum,
                    .centered = centered,
                    .weight_decay = 0.1},
            [=](Doubles& w, const Doubles& gradient, States& states, int) {
              for (int i = 0; i < 24; ++i) {
                const double g = gradient[i] + 0.1 * w[i];
                states.a[i] = 0.9 * states.a[i] + 0.1 * g * g;
                states.b[i] = 0.9 * states.b[i] + 0.1 * g;
                const double mean = centered ? states.b[i] : 0;
                const double root = std::sqrt(std::max(states.a[i] - mean * mean, 0.0)) + 1e-3;
                states.c[i] = momentum * states.c[i] + g / root;
                w[i] -= kLr * states.c[i];
              }
            });
    }
  }
}

TEST(OptimizersTest, Adagrad) {
  Check(Adagrad{.lr = kLr, .lr_decay = 0.5, .initial_sum = 0.25, .weight_decay = 0.1},
        [](Doubles& w, const Doubles& gradient, States& states, int t) {
          for (int i = 0; i < 24; ++i) {
            const double g = gradient[i] + 0.1 * w[i];
            states.a[i] += g * g;
            w[i] -= kLr / (1 + 0.5 * t) * g / (std::sqrt(0.25 + states.a[i]) + 1e-10);
          }
        });
}

TEST(OptimizersTest, Lars) {
  Check(Lars{.lr = kLr, .momentum = 0.75, .trust = 0.5, .weight_decay = 0.1},
        [](Doubles& w, const Doubles& g, States& states, int) {
          const double size = Norm(w);
          const double ratio = 0.5 * size / (Norm(g) + 0.1 * size + 1e-8);
          for (int i = 0; i < 24; ++i) {
            states.a[i] = 0.75 * states.a[i] + kLr * ratio * (g[i] + 0.1 * w[i]);
            w[i] -= states.a[i];
          }
        });
}

TEST(OptimizersTest, Lamb) {
  Check(Lamb{.lr = kLr, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1},
        [](Doubles& w, const Doubles& g, States& states, int t) {
          Doubles direction(24);
          for (int i = 0; i < 24; ++i) {
            states.a[i] = 0.8 * states.a[i] + 0.2 * g[i];
            states.b[i] = 0.9 * states.b[i] + 0.1 * g[i] * g[i];
            const double m = states.a[i] / (1 - std::pow(0.8, t + 1));
            const double v = states.b[i] / (1 - std::pow(0.9, t + 1));
            direction[i] = m / (std::sqrt(v) + 1e-6) + 0.1 * w[i];
          }
          const double ratio = Norm(w) / Norm(direction);
          for (int i = 0; i < 24; ++i) w[i] -= kLr * ratio * direction[i];
        });
}

// 6 rows and 4 columns.
TEST(OptimizersTest, Adafactor) {
  for (const double clip : {1.0, 0.5}) {
    Check(
        Adafactor{
            .lr = kLr, .epsilon = 1e-3, .epsilon_scale = 0.25, .clip = clip, .weight_decay = 0.5},
        [=](Doubles& w, const Doubles& g, States& states, int t) {
          const double part = std::pow(t + 1, -0.8);
          double mean = 0;
          for (int r = 0; r < 6; ++r) {
            double square = 0;
            for (int c = 0; c < 4; ++c) square += g[r * 4 + c] * g[r * 4 + c] / 4;
            states.a[r] += part * (square - states.a[r]);
            mean += states.a[r] / 6;
          }
          for (int c = 0; c < 4; ++c) {
            double square = 0;
            for (int r = 0; r < 6; ++r) square += g[r * 4 + c] * g[r * 4 + c] / 6;
            states.b[c] += part * (square - states.b[c]);
          }
          Doubles direction(24);
          for (int i = 0; i < 24; ++i) {
            const double variance = states.a[i / 4] * states.b[i % 4] / std::max(mean, 1e-3);
            direction[i] = g[i] / std::sqrt(std::max(variance, 1e-6));
          }
          const double root = std::sqrt(24.0);
          const double rate = std::min(kLr, 1 / std::sqrt(t + 1)) * std::max(0.25, Norm(w) / root) /
                              std::max(1.0, Norm(direction) / (root * clip));
          for (int i = 0; i < 24; ++i) w[i] = w[i] * (1 - kLr * 0.5) - rate * direction[i];
        });
  }
}

// A vector has a mean square for each element; a later step's rate is at most 1 / sqrt(t).
TEST(OptimizersTest, AdafactorOfAVector) {
  const auto run = RunTraining(
      {.layout = {.name = "", .devices = {2}}, .steps = 3, .wants_variables = true}, [](Job& job) {
        const Tensor w = Variable(
            job.graph(), {.name = "w", .dtype = DType::kF64, .shape = {6}, .init = "ones"});
        const Tensor loss = Scale(ReduceSumSquare(w), 0.5);
        job.Fetch("loss", loss);
        job.Minimize(loss, Adafactor{.lr = 0.75, .epsilon = 0x1p-52});
      });
  ASSERT_TRUE(run.ok()) << run.status();
  double w = 1, mean = 0;
  for (int t = 1; t <= 3; ++t) {
    mean += std::pow(t, -0.8) * (w * w - mean);
    const double direction = w / std::sqrt(mean);
    w -= std::min(0.75, 1 / std::sqrt(t)) * std::max(1e-3, std::abs(w)) * direction /
         std::max(1.0, std::abs(direction));
  }
  int variables = 0;
  for (const auto& [name, value] : run->variables) {
    ++variables;
    const Array wide = value.As(DType::kF64);
    EXPECT_EQ(wide.data<double>().size(), 6u) << name;
    if (name == "w") {
      EXPECT_NEAR(wide.data<double>()[5], w, 1e-12);
    }
  }
  EXPECT_EQ(variables, 2);
}

// Without direction or length there is no ratio: the rate is the job's.
TEST(OptimizersTest, RatiosOfNothingAreOne) {
  for (const OptimizerSpec& optimizer : {OptimizerSpec(Lars{.lr = kLr, .momentum = 0}),
                                         OptimizerSpec(Lamb{.lr = kLr, .weight_decay = 0})}) {
    const auto run = RunTraining(
        {.layout = {.name = "", .devices = {2}}, .steps = 1, .wants_variables = true},
        [&](Job& job) {
          const Tensor w = Variable(
              job.graph(), {.name = "w", .dtype = DType::kF64, .shape = {6}, .init = "zeros"});
          const Tensor still = Variable(
              job.graph(), {.name = "still", .dtype = DType::kF64, .shape = {2}, .init = "ones"});
          const Tensor loss = Add(Sum(w), Scale(Sum(still), 0));
          job.Fetch("loss", loss);
          job.Minimize(loss, optimizer);
        });
    ASSERT_TRUE(run.ok()) << run.status();
    for (const auto& [name, value] : run->variables) {
      const Array wide = value.As(DType::kF64);
      if (name == "w") {
        EXPECT_NEAR(wide.data<double>()[5], -kLr, 1e-6);
      } else if (name == "still") {
        EXPECT_EQ(wide.data<double>()[1], 1);
      }
    }
  }
}

// States of a narrow variable are f32: sums of small squares stay sums.
TEST(OptimizersTest, NarrowVariablesHaveWideStates) {
  const auto run = RunTraining(
      {.layout = {.name = "", .devices = {2}}, .steps = kSteps, .wants_variables = true},
      Pulling(Adam{.lr = kLr}, NdSbp({sbp::S(0)}), DType::kBF16));
  ASSERT_TRUE(run.ok()) << run.status();
  const Doubles wide =
      WeightsAfter({.name = "", .devices = {1}}, Pulling(Adam{.lr = kLr}, NdSbp({sbp::B})));
  int states = 0;
  for (const auto& [name, value] : run->variables) {
    if (name == "w") {
      EXPECT_EQ(value.dtype(), DType::kBF16);
      const Array actual = value.As(DType::kF64);
      for (int i = 0; i < 24; ++i) EXPECT_NEAR(actual.data<double>()[i], wide[i], 0.02);
    } else {
      EXPECT_EQ(value.dtype(), DType::kF32) << name;
      ++states;
    }
  }
  EXPECT_EQ(states, 2);
}

void CheckSchedule(const std::function<Tensor(LogicalGraph&)>& schedule,
                   const std::function<double(int)>& expected) {
  SessionOptions options;
  options.devices = {1};
  options.progress = Progress::kOff;
  const auto session = Session::Start(options);
  ASSERT_TRUE(session.ok()) << session.status();
  auto job =
      (*session)->Compile("rates", [&](Job& job) { job.Fetch("rate", schedule(job.graph())); });
  ASSERT_TRUE(job.ok()) << job.status();
  const auto result = job->Run({.steps = 25});
  ASSERT_TRUE(result.ok()) << result.status();
  const std::vector<double> rates = result->Scalars("rate");
  ASSERT_EQ(rates.size(), 25u);
  for (int t = 0; t < 25; ++t) EXPECT_NEAR(rates[t], expected(t), 1e-6) << "step " << t;
}

double HalfCosine(double from, double to, double t) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

// As masks of other people's models are. Without a decay an update moves nothing where the gradient
// is zero, and 0 times infinity would be no number.
TEST(OptimizersTest, ZeroGradientsLeaveInfiniteNumbers) {
  const std::vector<OptimizerSpec> optimizers = {Sgd{.lr = kLr}, Sgd{.lr = kLr, .momentum = 0.5},
                                                 Adam{.lr = kLr}, Adagrad{.lr = kLr},
                                                 RmsProp{.lr = kLr}};
  for (const OptimizerSpec& optimizer : optimizers) {
    const Doubles w = WeightsAfter({.devices = {1}}, [&](Job& job) {
      const Tensor mask = Variable(
          job.graph(),
          {.name = "w", .dtype = DType::kF64, .shape = {4}, .init = "constant", .value = INFINITY});
      const Tensor loss = ReduceSum(Where(IsInf(mask), Scale(StopGradient(Sign(mask)), 2), mask));
      job.Fetch("loss", loss);
      job.Minimize(loss, optimizer);
    });
    EXPECT_EQ(w, Doubles(4, INFINITY));
  }
}

TEST(SchedulesTest, AreTheirFormulas) {
  CheckSchedule(
      [](LogicalGraph& graph) {
        return WarmupCosine(graph, {.peak = 0.5, .floor = 0.1, .warmup_steps = 4, .steps = 20});
      },
      [](int t) {
        return t < 4 ? 0.5 * (t + 1) / 4 : HalfCosine(0.5, 0.1, std::min((t - 4) / 16.0, 1.0));
      });
  CheckSchedule(
      [](LogicalGraph& graph) {
        return StepDecay(graph, {.initial = 0.5, .factor = 0.5, .every = 7});
      },
      [](int t) { return 0.5 * std::pow(0.5, t / 7); });
  CheckSchedule(
      [](LogicalGraph& graph) {
        return ExponentialDecay(graph, {.initial = 0.5, .factor = 0.5, .every = 7});
      },
      [](int t) { return 0.5 * std::pow(0.5, t / 7.0); });
  CheckSchedule(
      [](LogicalGraph& graph) {
        return PolynomialDecay(graph, {.initial = 0.5, .floor = 0.1, .power = 2, .steps = 20});
      },
      [](int t) { return 0.1 + 0.4 * std::pow(1 - std::min(t / 20.0, 1.0), 2); });
  CheckSchedule(
      [](LogicalGraph& graph) {
        return OneCycle(graph, {.peak = 0.5, .start_divisor = 5, .end_divisor = 10, .steps = 20});
      },
      [](int t) {
        const double top = 0.3 * 20 - 1;
        if (t < top) return HalfCosine(0.1, 0.5, t / top);
        return HalfCosine(0.5, 0.01, std::min((t - top) / (19 - top), 1.0));
      });
  CheckSchedule(
      [](LogicalGraph& graph) {
        return LinearWarmup(PolynomialDecay(graph, {.initial = 1, .steps = 20}), 8);
      },
      [](int t) { return (1 - std::min(t / 20.0, 1.0)) * std::min((t + 1) / 8.0, 1.0); });
}

// Three variables [4] with gradients w - i, in groups, after kSteps of momentum: each by its own
// formula, and one not at all.
TEST(OptimizersTest, GroupsInOneMinimize) {
  constexpr double kMomentum = 0.5, kDecay = 0.125, kFactor = 0.25;
  const auto record = [=](Job& job) {
    const Tensor targets = Iota(job.graph(), {DType::kF64, {4}});
    Tensor loss = Constant(job.graph(), 0, {.dtype = DType::kF64});
    for (const char* name : {"body.w", "body.b", "stem.w", "stem.b"}) {
      const Tensor w = Variable(
          job.graph(),
          {.name = name, .dtype = DType::kF64, .shape = {4}, .init = "constant", .value = 0.5});
      loss = loss + Scale(ReduceSumSquare(w - targets), 0.5);
    }
    job.Fetch("loss", loss);
    job.Minimize(loss, Sgd{.lr = kLr, .momentum = kMomentum, .weight_decay = kDecay},
                 {.groups = {{.names = "stem.w", .is_frozen = true},
                             {.names = "*.b", .rate = kFactor, .weight_decay = 0}}});
  };
  const auto expected = [=](double target, double rate, double decay) {
    double w = 0.5, speed = 0;
    for (int step = 0; step < kSteps; ++step) {
      speed = kMomentum * speed + (w - target) + decay * w;
      w -= rate * speed;
    }
    return w;
  };
  for (const std::vector<int>& devices : {std::vector<int>{1}, {2}, {2, 2}}) {
    const auto run = RunTraining(
        {.layout = {.devices = devices}, .steps = kSteps, .wants_variables = true}, record);
    ASSERT_TRUE(run.ok()) << run.status();
    int seen = 0;
    for (const auto& [name, value] : run->variables) {
      if (name != "body.w" && name != "body.b" && name != "stem.w" && name != "stem.b") continue;
      ++seen;
      const bool is_bias = name.ends_with(".b");
      for (int i = 0; i < 4; ++i) {
        const double wanted = name == "stem.w" ? 0.5
                              : is_bias        ? expected(i, kLr * kFactor, 0)
                                               : expected(i, kLr, kDecay);
        EXPECT_NEAR(value.data<double>()[i], wanted, 1e-14) << name;
      }
    }
    EXPECT_EQ(seen, 4);
  }
}

// w [4] with gradients w - i, and averages beside it, which another job computes with. The norm of
// the gradients is that before they are clipped; micro-batches and splits change nothing.
TEST(OptimizersTest, AveragesAndNorms) {
  constexpr double kDecay = 0.75, kClip = 0.5;
  Doubles averages(4), norms, norms_of_b, w(4, 0.5), b(4, 0.5);
  for (int step = 0; step < kSteps; ++step) {
    double squares = 0, squares_of_b = 0;
    for (int i = 0; i < 4; ++i) {
      averages[i] = step == 0 ? w[i] : kDecay * averages[i] + (1 - kDecay) * w[i];
      squares += (w[i] - i) * (w[i] - i);
      squares_of_b += (b[i] - i) * (b[i] - i);
    }
    norms.push_back(std::sqrt(squares + squares_of_b));
    norms_of_b.push_back(std::sqrt(squares_of_b));
    const double rate = kLr * std::min(1.0, kClip / (norms.back() + 1e-6));
    for (int i = 0; i < 4; ++i) w[i] -= rate * (w[i] - i), b[i] -= rate / 4 * (b[i] - i);
  }
  const auto weights = [](Job& job, const char* name, const NdSbp& sbp) {
    return Variable(job.graph(), {.name = name,
                                  .dtype = DType::kF64,
                                  .shape = {4},
                                  .init = "constant",
                                  .value = 0.5,
                                  .sbp = sbp});
  };
  for (const NdSbp& sbp : {NdSbp{sbp::B}, NdSbp{sbp::S(0)}}) {
    for (const int micro_batches : {1, 2}) {
      for (const std::vector<int>& devices : {std::vector<int>{1}, {2}, {2, 2}}) {
        const auto session = StartOrDie({.devices = devices});
        auto train = session->Compile("train", [&](Job& job) {
          const Tensor x = ToSbp(job.Input("x", {4, 1}, DType::kF64), sbp::S(0));
          const Tensor targets = Iota(job.graph(), {DType::kF64, {4}});
          Tensor loss = Constant(job.graph(), 0, {.dtype = DType::kF64});
          for (const char* name : {"net.w", "net.b"}) {
            const Tensor rows = Mul(Sub(weights(job, name, sbp), targets), x);  // x is 1
            loss = loss + Mean(Scale(ReduceSumSquare(rows, {.axes = {1}}), 0.5));
          }
          job.Minimize(loss, Sgd{.lr = kLr},
                       {.micro_batches = micro_batches,
                        .clip_global_norm = kClip,
                        .groups = {{.names = "*.b", .rate = 0.25}},
                        .ema = Ema{.decay = kDecay},
                        .norms = "norm"});
        });
        ASSERT_TRUE(train.ok()) << train.status().message();
        auto evaluate = session->Compile("evaluate", [&](Job& job) {
          job.UseAverages();
          job.Fetch("w", weights(job, "net.w", sbp));
        });
        ASSERT_TRUE(evaluate.ok()) << evaluate.status().message();
        const auto ones = Array::FromVector<double>({4, 1}, {1, 1, 1, 1});
        const auto result = train->Run({.steps = kSteps, .feeds = {{"x", ones}}});
        ASSERT_TRUE(result.ok()) << result.status().message();
        for (int step = 0; step < kSteps; ++step) {
          EXPECT_NEAR(result->Scalars("norm")[step], norms[step], 1e-12);
          EXPECT_NEAR(result->Scalars("norm.*.b")[step], norms_of_b[step], 1e-12);
        }
        const auto evaluated = evaluate->Run();
        ASSERT_TRUE(evaluated.ok()) << evaluated.status().message();
        const auto kept = session->Get("net.w"), average = session->Get("net.w.ema");
        ASSERT_TRUE(kept.ok() && average.ok()) << average.status().message();
        for (int i = 0; i < 4; ++i) {
          EXPECT_NEAR(kept->data<double>()[i], w[i], 1e-13);
          EXPECT_NEAR(average->data<double>()[i], averages[i], 1e-13);
          EXPECT_EQ(evaluated->Last("w").data<double>()[i], average->data<double>()[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
