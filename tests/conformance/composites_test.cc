// What functional.h composes of operators: values against formulas written out here, gradients
// against differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_gradient.h"
#include "api/conformance/operator_layout.h"
#include "graph/functional.h"
#include "graph/op_registry.h"

namespace braid::conformance {
namespace {

using Doubles = std::vector<double>;
using BuildComposite = std::function<Tensor(const std::vector<Tensor>&)>;

TensorType F64(Shape shape) { return {DType::kF64, std::move(shape)}; }
TensorType I64(Shape shape) { return {DType::kI64, std::move(shape)}; }

class CompositesTest : public testing::Test {
 protected:
  Doubles Evaluate(const OpCase& c, const std::vector<Array>& inputs, const BuildComposite& build) {
    LogicalGraph graph(&ops_);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      tensors.push_back(Input(graph, "in" + std::to_string(i), c.inputs[i]));
    }
    const Tensor result = build(tensors);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    auto interpreter = GraphInterpreter::Make(graph, kernels_);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    for (size_t i = 0; i < inputs.size(); ++i) {
      interpreter->Set("in" + std::to_string(i), inputs[i]);
    }
    const absl::Status status = interpreter->Run();
    EXPECT_TRUE(status.ok()) << status;
    return Numbers(interpreter->value(result));
  }

  // The value is what `formula` makes of the inputs' numbers; with gradients, if the case says so.
  void Check(const OpCase& c, const BuildComposite& build,
             const std::function<Doubles(const std::vector<Doubles>&)>& formula) {
    SCOPED_TRACE(c.label);
    const std::vector<Array> inputs = DrawInputs(c);
    std::vector<Doubles> numbers;
    for (const Array& input : inputs) numbers.push_back(Numbers(input));
    EXPECT_EQ(Compare(Evaluate(c, inputs, build), formula(numbers), 1e-12), "");
    if (!c.check_gradient) return;
    const GradientCheck gradient = CheckGradient(
        ops_, kernels_, c,
        [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{build(in)}; });
    EXPECT_EQ(gradient.error, "");
    EXPECT_GT(gradient.derivatives, 0);
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
};

// ---- Cross entropy: logits [5, 6], labels [5], weights [6]
// ---------------------------------------

struct Expected {
  double smoothing = 0;
  int64_t ignored = -1;
  bool weighted = false;
};

// The rows' losses, then what the mean divides by.
Doubles CrossEntropyRows(const std::vector<Doubles>& in, const Expected& e) {
  Doubles result;
  double divisor = 0;
  for (int row = 0; row < 5; ++row) {
    const auto label = static_cast<int64_t>(in[1][row]);
    const auto weight = [&](int64_t c) { return e.weighted ? in[2][c] : 1.0; };
    if (label == e.ignored) {
      result.push_back(0);
      continue;
    }
    double sum = 0;
    for (int c = 0; c < 6; ++c) sum += std::exp(in[0][row * 6 + c]);
    const auto loss = [&](int64_t c) { return std::log(sum) - in[0][row * 6 + c]; };
    double spread = 0;
    for (int c = 0; c < 6; ++c) spread += weight(c) * loss(c);
    result.push_back((1 - e.smoothing) * weight(label) * loss(label) + e.smoothing / 6 * spread);
    divisor += weight(label);
  }
  result.push_back(divisor);
  return result;
}

TEST_F(CompositesTest, CrossEntropy) {
  for (const double smoothing : {0.0, 0.25}) {
    for (const int64_t ignored : {-1, 2}) {
      for (const bool weighted : {false, true}) {
        const Expected e = {smoothing, ignored, weighted};
        const OpCase c = {.label = "smoothing " + std::to_string(smoothing) + ", ignored " +
                                   std::to_string(ignored) + (weighted ? ", weighted" : ""),
                          .inputs = {F64({5, 6}), I64({5}), F64({6})},
                          .low = 0.5,
                          .high = 2,
                          .int_high = 6};
        const auto options = [&](const std::vector<Tensor>& in, LossReduction reduction) {
          CrossEntropyOptions o = {.label_smoothing = smoothing, .reduction = reduction};
          if (ignored >= 0) o.ignore_index = ignored;
          if (weighted) o.weights = in[2];
          return o;
        };
        Check(
            c,
            [&](const std::vector<Tensor>& in) {
              return CrossEntropy(in[0], in[1], options(in, LossReduction::kNone));
            },
            [&](const std::vector<Doubles>& in) {
              Doubles rows = CrossEntropyRows(in, e);
              rows.pop_back();
              return rows;
            });
        Check(
            c,
            [&](const std::vector<Tensor>& in) {
              return CrossEntropy(in[0], in[1], options(in, LossReduction::kMean));
            },
            [&](const std::vector<Doubles>& in) {
              const Doubles rows = CrossEntropyRows(in, e);
              double sum = 0;
              for (int i = 0; i < 5; ++i) sum += rows[i];
              return Doubles{sum / rows[5]};
            });
      }
    }
  }
}

TEST_F(CompositesTest, NllIsTheLabelsWeightedTerm) {
  const OpCase c = {.label = "nll",
                    .inputs = {F64({5, 6}), I64({5}), F64({6})},
                    .low = 0.5,
                    .high = 2,
                    .int_high = 6};
  Check(
      c,
      [](const std::vector<Tensor>& in) {
        return NllLoss(in[0], in[1], {.weights = in[2], .ignore_index = 3});
      },
      [](const std::vector<Doubles>& in) {
        double sum = 0, count = 0;
        for (int row = 0; row < 5; ++row) {
          const int label = static_cast<int>(in[1][row]);
          if (label == 3) continue;
          sum -= in[2][label] * in[0][row * 6 + label];
          count += in[2][label];
        }
        return Doubles{sum / count};
      });
}

// ---- Element by element
// --------------------------------------------------------------------------

TEST_F(CompositesTest, LossesOfPairs) {
  struct Pair {
    const char* name;
    BuildComposite build;
    double (*formula)(double x, double t);
    double low = -2, high = 2;
  };
  const LossReduction none = LossReduction::kNone;
  const Pair pairs[] = {
      {"mse", [=](const auto& in) { return MseLoss(in[0], in[1], {.reduction = none}); },
       [](double x, double t) { return (x - t) * (x - t); }},
      {"l1", [=](const auto& in) { return L1Loss(in[0], in[1], {.reduction = none}); },
       [](double x, double t) { return std::abs(x - t); }},
      {"huber",
       [=](const auto& in) { return HuberLoss(in[0], in[1], {.delta = 0.75, .reduction = none}); },
       [](double x, double t) {
         const double d = std::abs(x - t);
         return d <= 0.75 ? d * d / 2 : 0.75 * (d - 0.375);
       }},
      {"smooth l1",
       [=](const auto& in) { return SmoothL1Loss(in[0], in[1], {.beta = 0.5, .reduction = none}); },
       [](double x, double t) {
         const double d = std::abs(x - t);
         return d <= 0.5 ? d * d : d - 0.25;
       }},
      {"hinge", [=](const auto& in) { return HingeLoss(in[0], in[1], {.reduction = none}); },
       [](double x, double t) { return std::max(0.0, 1 - x * t); }},
      {"bce", [=](const auto& in) { return BinaryCrossEntropy(in[0], in[1], {.reduction = none}); },
       [](double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); }, 0.1, 0.9},
      {"bce with logits",
       [=](const auto& in) {
         return BinaryCrossEntropyWithLogits(in[0], in[1], {.reduction = none});
       },
       [](double x, double t) {
         const double p = 1 / (1 + std::exp(-x));
         return -t * std::log(p) - (1 - t) * std::log(1 - p);
       }},
      {"bce with logits, weighted",
       [=](const auto& in) {
         const Tensor three = Constant(*in[0].graph(), 3, {.dtype = DType::kF64});
         return BinaryCrossEntropyWithLogits(in[0], in[1],
                                             {.positive_weight = three, .reduction = none});
       },
       [](double x, double t) {
         const double p = 1 / (1 + std::exp(-x));
         return -3 * t * std::log(p) - (1 - t) * std::log(1 - p);
       }},
      {"kl", [=](const auto& in) { return KlDivergence(in[0], in[1], {.reduction = none}); },
       [](double x, double t) { return t * (std::log(t) - x); }, 0.1, 0.9},
      {"kl of logarithms",
       [=](const auto& in) {
         return KlDivergence(in[0], in[1], {.log_target = true, .reduction = none});
       },
       [](double x, double t) { return std::exp(t) * (t - x); }},
      {"prelu", [](const auto& in) { return Prelu(in[0], in[1]); },
       [](double x, double t) { return x < 0 ? t * x : x; }},
  };
  for (const Pair& pair : pairs) {
    Check({.label = pair.name,
           .inputs = {F64({5, 6}), F64({5, 6})},
           .low = pair.low,
           .high = pair.high},
          pair.build, [&](const std::vector<Doubles>& in) {
            Doubles out;
            for (size_t i = 0; i < in[0].size(); ++i) {
              out.push_back(pair.formula(in[0][i], in[1][i]));
            }
            return out;
          });
  }
}

TEST_F(CompositesTest, FarFromZeroNothingOverflowsOrCancels) {
  const OpCase c = {.label = "far", .inputs = {F64({4}), F64({4})}, .check_gradient = false};
  const std::vector<Array> inputs = {FromNumbers(DType::kF64, {4}, {800, -800, 800, -800}),
                                     FromNumbers(DType::kF64, {4}, {1, 0, 0, 1})};
  EXPECT_EQ(Evaluate(c, inputs,
                     [](const auto& in) {
                       return BinaryCrossEntropyWithLogits(in[0], in[1],
                                                           {.reduction = LossReduction::kNone});
                     }),
            (Doubles{0, 0, 800, 800}));
  EXPECT_EQ(Evaluate(c, inputs, [](const auto& in) { return LogSumExp(in[0]); }),
            (Doubles{800 + std::log(2)}));
  EXPECT_EQ(Evaluate(c, inputs, [](const auto& in) { return LogSigmoid(in[0]); }),
            (Doubles{0, -800, 0, -800}));
  EXPECT_EQ(Evaluate(c, inputs, [](const auto& in) { return Softplus(in[0]); }),
            (Doubles{800, 0, 800, 0}));
  // 0 log 0 is 0.
  EXPECT_EQ(Evaluate(c, inputs,
                     [](const auto& in) {
                       return KlDivergence(in[0], in[1], {.reduction = LossReduction::kNone});
                     }),
            (Doubles{-800, 0, 0, 800}));
}

// ---- Along axes
// ----------------------------------------------------------------------------------

TEST_F(CompositesTest, Reductions) {
  const OpCase c = {.label = "middle axis", .inputs = {F64({3, 5, 2})}};
  const auto along = [](const std::function<double(const Doubles&)>& f) {
    return [f](const std::vector<Doubles>& in) {
      Doubles out;
      for (int i = 0; i < 3; ++i) {
        for (int k = 0; k < 2; ++k) {
          Doubles row;
          for (int j = 0; j < 5; ++j) row.push_back(in[0][(i * 5 + j) * 2 + k]);
          out.push_back(f(row));
        }
      }
      return out;
    };
  };
  const auto variance = [](const Doubles& row) {
    double mean = 0, sum = 0;
    for (double x : row) mean += x / 5;
    for (double x : row) sum += (x - mean) * (x - mean);
    return sum / 4;
  };
  Check(
      c, [](const auto& in) { return Variance(in[0], {.axes = {1}}); }, along(variance));
  Check(
      c, [](const auto& in) { return StandardDeviation(in[0], {.axes = {-2}}); },
      along([&](const Doubles& row) { return std::sqrt(variance(row)); }));
  Check(
      c, [](const auto& in) { return LogSumExp(in[0], {.axes = {1}}); },
      along([](const Doubles& row) {
        double sum = 0;
        for (double x : row) sum += std::exp(x);
        return std::log(sum);
      }));
  Check(
      c, [](const auto& in) { return ReduceL2(in[0], {.axes = {1}}); },
      along([](const Doubles& row) {
        double sum = 0;
        for (double x : row) sum += x * x;
        return std::sqrt(sum);
      }));
  EXPECT_EQ(Evaluate(c, {FromNumbers(DType::kF64, {3, 5, 2}, Doubles(30, -INFINITY))},
                     [](const auto& in) { return LogSumExp(in[0], {.axes = {1}}); }),
            Doubles(6, -INFINITY));
}

TEST_F(CompositesTest, CosineSimilarity) {
  Check(
      {.label = "cosine", .inputs = {F64({3, 5}), F64({3, 5})}},
      [](const auto& in) { return CosineSimilarity(in[0], in[1]); },
      [](const std::vector<Doubles>& in) {
        Doubles out;
        for (int i = 0; i < 3; ++i) {
          double dot = 0, a = 0, b = 0;
          for (int j = i * 5; j < i * 5 + 5; ++j) {
            dot += in[0][j] * in[1][j];
            a += in[0][j] * in[0][j];
            b += in[1][j] * in[1][j];
          }
          out.push_back(dot / std::sqrt(a * b));
        }
        return out;
      });
}

// Gradients where others have none: a norm at 0, a product with zeros.
TEST_F(CompositesTest, GradientsAtZero) {
  const OpCase c = {.label = "zeros", .inputs = {F64({4})}, .low = 0, .high = 0};
  const GradientCheck product = CheckGradient(ops_, kernels_, c, [](const std::vector<Tensor>& in) {
    const Tensor one = Constant(*in[0].graph(), 1, {.dtype = DType::kF64, .shape = {3}});
    return std::vector<Tensor>{ReduceProd(Concat({Slice(in[0], {0}, {1}), one}, 0)),
                               Sum(CumProd(Concat({one, Slice(in[0], {0}, {1}), one}, 0), 0))};
  });
  EXPECT_EQ(product.error, "");
  const GradientCheck norm = CheckGradient(ops_, kernels_, c, [](const std::vector<Tensor>& in) {
    // Its differences are those of |x|, 0 as well.
    return std::vector<Tensor>{ReduceL2(in[0])};
  });
  EXPECT_EQ(norm.error, "");
}

}  // namespace
}  // namespace braid::conformance
