// Functions that are made of several operators: their numbers against plain loops, and their
// gradients against differences.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_gradient.h"
#include "graph/functional.h"
#include "graph/functions/recurrent.h"
#include "graph/op_registry.h"

namespace braid::conformance {
namespace {

using Doubles = std::vector<double>;
using Tensors = std::vector<Tensor>;

class SequenceCompositesTest : public testing::Test {
 protected:
  static TensorType F64(Shape shape) { return {DType::kF64, std::move(shape)}; }

  void ExpectGradients(const OpCase& c, const BuildFunction& build, int derivatives) {
    const GradientCheck check = CheckGradient(ops_, kernels_, c, build);
    EXPECT_EQ(check.error, "") << c.label;
    EXPECT_EQ(check.derivatives, derivatives) << c.label;
  }

  // What `build` makes of the case's inputs.
  std::vector<Doubles> Run(const OpCase& c, const BuildFunction& build) {
    LogicalGraph graph(&ops_);
    Tensors inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      inputs.push_back(Input(graph, "in" + std::to_string(i), c.inputs[i]));
    }
    const Tensors outputs = build(inputs);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    if (!graph.status().ok()) return {};
    auto interpreter = GraphInterpreter::Make(graph, kernels_);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    const std::vector<Array> values = DrawInputs(c);
    for (size_t i = 0; i < values.size(); ++i) {
      interpreter->Set("in" + std::to_string(i), values[i]);
    }
    const absl::Status status = interpreter->Run();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<Doubles> results;
    for (const Tensor& output : outputs)
      results.push_back(Numbers(interpreter->value(output.id())));
    return results;
  }

  static void ExpectNear(const Doubles& actual, const Doubles& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
};

// ---- attention ----------------------------------------------------------------------------------

TEST_F(SequenceCompositesTest, AttentionIsSoftmaxBetweenMatmuls) {
  const TensorType q = F64({2, 3, 70, 8});
  const OpCase c = {.label = "attention", .inputs = {q, q, q}};
  const auto results = Run(c, [](const Tensors& in) {
    const Tensor weights =
        Softmax(MatMul(in[0], in[1], {.transpose_b = true}), {.causal = true, .scale = 0.3});
    return Tensors{DotProductAttention(in[0], in[1], in[2], {.causal = true, .scale = 0.3}),
                   MatMul(weights, in[2])};
  });
  ASSERT_EQ(results.size(), 2u);
  ExpectNear(results[0], results[1]);
}

// ---- recurrent layers ---------------------------------------------------------------------------

constexpr int64_t kTime = 3, kBatch = 2, kFeatures = 3, kUnits = 4;

// x, input and recurrent weights, their biases, state, cell, lengths.
OpCase RecurrentCase(const std::string& label, int64_t gates) {
  const auto f64 = [](Shape shape) { return TensorType{DType::kF64, std::move(shape)}; };
  return {.label = label,
          .inputs = {f64({kTime, kBatch, kFeatures}),
                     f64({gates * kUnits, kFeatures}),
                     f64({gates * kUnits, kUnits}),
                     f64({gates * kUnits}),
                     f64({gates * kUnits}),
                     f64({kBatch, kUnits}),
                     f64({kBatch, kUnits}),
                     {DType::kI32, {kBatch}}},
          .int_high = kTime + 1};
}

using Layer = RecurrentResult (*)(Tensor, RecurrentWeights, RecurrentOptions, SourceLocation);

BuildFunction BuildOf(Layer layer, bool reverse, bool has_lengths) {
  return [=](const Tensors& in) {
    RecurrentOptions options = {
        .initial_state = in[5], .initial_cell = in[6], .lengths = {}, .reverse = reverse};
    if (has_lengths) options.lengths = in[7];
    const RecurrentResult result = layer(in[0], {in[1], in[2], in[3], in[4]}, options, Here());
    Tensors outputs = {result.outputs, result.state};
    if (result.cell.valid()) outputs.push_back(result.cell);
    return outputs;
  };
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Outputs, state and cell by plain loops; `gates` says which layer.
std::vector<Doubles> ExpectedOf(const OpCase& c, int64_t gates, bool reverse, bool has_lengths) {
  std::vector<Doubles> in;
  for (const Array& array : DrawInputs(c)) in.push_back(Numbers(array));
  Doubles outputs(kTime * kBatch * kUnits), h = in[5], cell = in[6];
  const auto times = [&](int64_t weight, int64_t row, const double* v, int64_t size) {
    double sum = in[weight + 2][row];  // its bias
    for (int64_t i = 0; i < size; ++i) sum += in[weight][row * size + i] * v[i];
    return sum;
  };
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t i = 0; i < kTime; ++i) {
      const int64_t t = reverse ? kTime - 1 - i : i;
      if (has_lengths && t >= in[7][b]) continue;
      const double* x = &in[0][(t * kBatch + b) * kFeatures];
      const Doubles last(h.begin() + b * kUnits, h.begin() + (b + 1) * kUnits);
      for (int64_t u = 0; u < kUnits; ++u) {
        Doubles from_x, from_h;
        for (int64_t g = 0; g < gates; ++g) {
          from_x.push_back(times(1, g * kUnits + u, x, kFeatures));
          from_h.push_back(times(2, g * kUnits + u, last.data(), kUnits));
        }
        const auto sum = [&](int64_t g) { return from_x[g] + from_h[g]; };
        double& state = h[b * kUnits + u];
        if (gates == 1) {
          state = std::tanh(sum(0));
        } else if (gates == 3) {
          const double keep = Sigmoid(sum(1));
          state = (1 - keep) * std::tanh(from_x[2] + Sigmoid(sum(0)) * from_h[2]) + keep * last[u];
        } else {
          double& memory = cell[b * kUnits + u];
          memory = Sigmoid(sum(1)) * memory + Sigmoid(sum(0)) * std::tanh(sum(2));
          state = Sigmoid(sum(3)) * std::tanh(memory);
        }
        outputs[(t * kBatch + b) * kUnits + u] = state;
      }
    }
  }
  std::vector<Doubles> results = {outputs, h};
  if (gates == 4) results.push_back(cell);
  return results;
}

TEST_F(SequenceCompositesTest, RecurrentLayers) {
  const std::pair<Layer, int64_t> layers[] = {{Rnn, 1}, {Gru, 3}, {Lstm, 4}};
  for (const auto& [layer, gates] : layers) {
    for (const bool reverse : {false, true}) {
      for (const bool has_lengths : {false, true}) {
        const OpCase c = RecurrentCase(std::to_string(gates) + " gates", gates);
        SCOPED_TRACE(c.label + (reverse ? ", reverse" : "") + (has_lengths ? ", lengths" : ""));
        const BuildFunction build = BuildOf(layer, reverse, has_lengths);
        const auto results = Run(c, build), expected = ExpectedOf(c, gates, reverse, has_lengths);
        ASSERT_EQ(results.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) ExpectNear(results[i], expected[i]);
        int64_t derivatives = 0;
        for (const TensorType& input : c.inputs) {
          if (IsFloating(input.dtype)) derivatives += input.shape.num_elements();
        }
        ExpectGradients(c, build, static_cast<int>(derivatives));
      }
    }
  }
}

TEST_F(SequenceCompositesTest, RecurrentLayersSayWhatDoesNotFit) {
  LogicalGraph graph(&ops_);
  const Tensor x = Input(graph, "x", F64({3, 2, 5})), w = Input(graph, "w", F64({8, 5}));
  const Tensor r = Input(graph, "r", F64({8, 3}));
  EXPECT_FALSE(Lstm(x, {w, r}).outputs.valid());
  EXPECT_NE(graph.status().message().find(
                "lstm: x is f64[3, 2, 5], weights are f64[8, 5] and f64[8, 3], biases none and "
                "none, states none and none, lengths none; [time, batch, features]"),
            std::string::npos)
      << graph.status();
}

// ---- embedding_bag ------------------------------------------------------------------------------

TEST_F(SequenceCompositesTest, EmbeddingBag) {
  const OpCase c = {.label = "embedding_bag",
                    .inputs = {F64({5, 3}), {DType::kI64, {4, 6}}, F64({4, 6})},
                    .int_high = 3};
  const std::vector<Array> arrays = DrawInputs(c);
  const Doubles table = Numbers(arrays[0]), indices = Numbers(arrays[1]);
  const Doubles weights = Numbers(arrays[2]);
  for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
    for (const int64_t padding : {-1, 1}) {
      for (const bool has_weights : {false, true}) {
        if (has_weights && mode != BagMode::kSum) continue;
        SCOPED_TRACE(std::to_string(static_cast<int>(mode)) + ", padding " +
                     std::to_string(padding) + (has_weights ? ", weights" : ""));
        const BuildFunction build = [=](const Tensors& in) {
          EmbeddingBagOptions options = {.mode = mode};
          if (has_weights) options.weights = in[2];
          if (padding >= 0) options.padding_index = padding;
          return Tensors{EmbeddingBag(in[0], in[1], options)};
        };
        Doubles expected(4 * 3);
        for (int64_t bag = 0; bag < 4; ++bag) {
          for (int64_t column = 0; column < 3; ++column) {
            double sum = 0, max = -1e300, count = 0;
            for (int64_t i = bag * 6; i < bag * 6 + 6; ++i) {
              if (indices[i] == static_cast<double>(padding)) continue;
              const double value = table[static_cast<int64_t>(indices[i]) * 3 + column];
              sum += has_weights ? weights[i] * value : value;
              max = std::max(max, value);
              ++count;
            }
            double& result = expected[bag * 3 + column];
            if (mode == BagMode::kSum) result = sum;
            if (mode == BagMode::kMean && count > 0) result = sum / count;
            if (mode == BagMode::kMax && count > 0) result = max;
          }
        }
        const auto results = Run(c, build);
        ASSERT_EQ(results.size(), 1u);
        ExpectNear(results[0], expected);
        // Ties of the largest move by more than differences see: one bag may hold a row twice.
        if (mode != BagMode::kMax) ExpectGradients(c, build, 5 * 3 + 4 * 6);
      }
    }
  }
}

// All of a bag is padding: zeros, and no gradient.
TEST_F(SequenceCompositesTest, EmptyBags) {
  const OpCase c = {.label = "empty bags",
                    .inputs = {F64({5, 3}), {DType::kI64, {2, 4}}},
                    .int_high = 1};  // only index 0
  for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
    const BuildFunction build = [=](const Tensors& in) {
      return Tensors{EmbeddingBag(in[0], in[1], {.mode = mode, .padding_index = 0})};
    };
    const auto results = Run(c, build);
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0], Doubles(6, 0.0));
    ExpectGradients(c, build, 15);
  }
}

}  // namespace
}  // namespace braid::conformance
