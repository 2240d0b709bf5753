// What the samples of convolution, pooling and normalization cannot say: gradients of composites,
// numbers known from elsewhere, and that both ways of computing a convolution agree.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "api/conformance/graph_interpreter.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_gradient.h"
#include "api/conformance/operator_layout.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "runtime/kernels/cpu/convolution.h"

namespace braid::conformance {
namespace {

class VisionTest : public testing::Test {
 protected:
  void ExpectGradient(const char* label, std::vector<Shape> inputs, const BuildFunction& build) {
    OpCase c = {.label = label};
    int64_t elements = 0;
    for (Shape& shape : inputs) {
      elements += shape.num_elements();
      c.inputs.push_back({DType::kF64, std::move(shape)});
    }
    const GradientCheck check = CheckGradient(ops_, kernels_, c, build);
    EXPECT_EQ(check.error, "");
    EXPECT_EQ(check.derivatives, elements);
  }

  // The value of build(x) for x = values.
  std::vector<double> Evaluate(const Shape& shape, const std::vector<double>& values,
                               const std::function<Tensor(Tensor)>& build) {
    LogicalGraph graph(&ops_);
    const Tensor y = build(Input(graph, "x", {DType::kF64, shape}));
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    if (!y.valid()) return {};
    auto interpreter = GraphInterpreter::Make(graph, kernels_);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    interpreter->Set("x", FromNumbers(DType::kF64, shape, values));
    const absl::Status status = interpreter->Run();
    EXPECT_TRUE(status.ok()) << status;
    return Numbers(interpreter->value(y.id()));
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
};

using In = const std::vector<Tensor>&;

// All of it flows through the statistics, too.
TEST_F(VisionTest, BatchNormTrainingHasTheWholeGradient) {
  for (const Shape& x : {Shape{4, 3, 5}, Shape{6, 3}, Shape{2, 3, 4, 5}}) {
    ExpectGradient("batch norm", {x, {3}, {3}}, [](In in) {
      return std::vector<Tensor>{BatchNormTraining(in[0], in[1], in[2], {.epsilon = 1e-2}).y};
    });
    ExpectGradient("batch statistics", {x, {3}, {3}}, [](In in) {
      const BatchNormResult result = BatchNormTraining(in[0], in[1], in[2], {.epsilon = 1e-2});
      return std::vector<Tensor>{result.y, result.mean, result.variance};
    });
    ExpectGradient("statistics of groups", {x, {3}, {3}}, [](In in) {
      const BatchNormResult result =
          BatchNormTraining(in[0], in[1], in[2], {.epsilon = 1e-2, .groups = 2});
      return std::vector<Tensor>{result.y, result.mean, result.variance};
    });
  }
}

TEST_F(VisionTest, CompositesHaveGradients) {
  ExpectGradient("transposed convolution", {{2, 4, 3, 4}, {4, 3, 3, 2}, {6}}, [](In in) {
    return std::vector<Tensor>{
        ConvTranspose(in[0], in[1], in[2],
                      {.strides = {2, 1}, .padding = {1}, .output_padding = {1, 0}, .groups = 2})};
  });
  ExpectGradient("local response", {{2, 6, 3}}, [](In in) {
    return std::vector<Tensor>{LocalResponseNorm(in[0], {.size = 3, .alpha = 0.5})};
  });
  ExpectGradient("instance norm", {{2, 3, 5}, {3}, {3}}, [](In in) {
    return std::vector<Tensor>{InstanceNorm(in[0], in[1], in[2], {.epsilon = 1e-2})};
  });
  ExpectGradient("bilinear", {{2, 2, 3, 4}}, [](In in) {
    return std::vector<Tensor>{Interpolate(in[0], {.sizes = {5, 6}, .mode = "linear"})};
  });
  ExpectGradient("Lp pooling", {{2, 2, 5}}, [](In in) {
    return std::vector<Tensor>{LpPool(in[0], 2, {.kernel = {3}, .strides = {2}})};
  });
}

TEST_F(VisionTest, PoolingGivesKnownNumbers) {
  const std::vector<double> row = {1, 5, 2, 4, 3};
  using D = std::vector<double>;
  EXPECT_EQ(Evaluate({1, 1, 5}, row,
                     [](Tensor x) {
                       return MaxPool(x, {.kernel = {2}, .strides = {2}, .ceil_mode = true});
                     }),
            (D{5, 4, 3}));
  EXPECT_EQ(Evaluate({1, 1, 5}, row,
                     [](Tensor x) {
                       return AvgPool(x, {.kernel = {3}, .strides = {2}, .padding = {1}});
                     }),
            (D{3, 11.0 / 3, 3.5}));
  EXPECT_EQ(
      Evaluate({1, 1, 5}, row,
               [](Tensor x) {
                 return AvgPool(
                     x, {.kernel = {3}, .strides = {2}, .padding = {1}, .count_include_pad = true});
               }),
      (D{2, 11.0 / 3, 7.0 / 3}));
  // [0, 2), [1, 4), [3, 5).
  EXPECT_EQ(Evaluate({1, 1, 5}, row, [](Tensor x) { return AdaptiveAvgPool(x, {3}); }),
            (D{3, 11.0 / 3, 3.5}));
  EXPECT_EQ(Evaluate({1, 1, 5}, row, [](Tensor x) { return AdaptiveMaxPool(x, {3}); }),
            (D{5, 5, 4}));
  // The first of equals; a NaN is the largest.
  const double nan = std::nan("");
  EXPECT_EQ(Evaluate({1, 1, 6}, {2, 2, nan, 3, -INFINITY, -INFINITY},
                     [](Tensor x) {
                       return Cast(MaxPoolWithIndices(x, {.kernel = {2}})[1], DType::kF64);
                     }),
            (D{0, 2, 4}));
}

TEST_F(VisionTest, InterpolationGivesKnownNumbers) {
  using D = std::vector<double>;
  const std::vector<double> row = {1, 2, 4};
  EXPECT_EQ(Evaluate({1, 1, 3}, row,
                     [](Tensor x) {
                       return Interpolate(
                           x, {.scales = {2}, .coordinates = "asymmetric", .rounding = "floor"});
                     }),
            (D{1, 1, 2, 2, 4, 4}));
  EXPECT_EQ(Evaluate({1, 1, 3}, row,
                     [](Tensor x) {
                       return Interpolate(
                           x, {.sizes = {5}, .mode = "linear", .coordinates = "align_corners"});
                     }),
            (D{1, 1.5, 2, 3, 4}));
  EXPECT_EQ(Evaluate({1, 1, 3}, row,
                     [](Tensor x) { return Interpolate(x, {.sizes = {6}, .mode = "linear"}); }),
            (D{1, 1.25, 1.75, 2.5, 3.5, 4}));
}

// Random shapes, by both libraries and all three sides.
TEST(ConvolutionTest, OneDnnAgreesWithTheMatrixProduct) {
  std::mt19937_64 generator(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  int by_onednn = 0;
  for (int i = 0; i < 60; ++i) {
    cpu::ConvolutionShape shape;
    shape.batch = draw(1, 9);
    shape.groups = draw(0, 2) == 0 ? draw(2, 17) : 1;
    shape.in = draw(1, shape.groups > 1 ? 3 : 35);
    shape.out = draw(1, shape.groups > 1 ? 3 : 35);
    // Large images are cut into several calls.
    const int64_t largest = i % 6 == 0 ? 150 : 12;
    for (int64_t axis = draw(1, i % 6 == 0 ? 2 : 3); axis > 0; --axis) {
      const WindowAxis window = {.kernel = draw(1, 4),
                                 .stride = draw(1, 3),
                                 .dilation = draw(1, 2),
                                 .pad_begin = draw(0, 3),
                                 .pad_end = draw(0, 3)};
      const int64_t size = draw(window.span(), largest);
      shape.axes.push_back(window);
      shape.space.push_back(size);
      shape.windows.push_back(*CountWindows(size, window));
    }
    for (auto side : {cpu::ConvolutionSide::kOutput, cpu::ConvolutionSide::kInput,
                      cpu::ConvolutionSide::kWeights}) {
      shape.side = side;
      shape.has_bias = side == cpu::ConvolutionSide::kOutput && i % 2 == 0;
      const auto fast = cpu::ChooseDnnlConvolution(shape),
                 plain = cpu::ChooseGemmConvolution(shape);
      if (fast == nullptr) continue;
      fast->Allocate();
      plain->Allocate();
      ++by_onednn;
      std::uniform_real_distribution<float> real(-1, 1);
      const auto numbers = [&](int64_t n) {
        std::vector<float> values(n);
        for (float& value : values) value = real(generator);
        return values;
      };
      const int64_t x = shape.batch * shape.x_elements(), y = shape.batch * shape.y_elements();
      const int64_t w = shape.w_elements();
      const bool is_output = side == cpu::ConvolutionSide::kOutput;
      const bool is_input = side == cpu::ConvolutionSide::kInput;
      const std::vector<float> first = numbers(is_input ? y : x);
      const std::vector<float> second = numbers(is_output || is_input ? w : y);
      const std::vector<float> bias = numbers(shape.groups * shape.out);
      std::vector<float> a(is_output ? y : is_input ? x : w, NAN), b = a;
      // Twice: nothing is left over from a run, and what may be kept is right.
      for (int run = 0; run < 2; ++run) {
        const float* const added = shape.has_bias ? bias.data() : nullptr;
        fast->Run({first.data(), second.data(), added, a.data(), /*has_same_second=*/run == 1});
        plain->Run({first.data(), second.data(), added, b.data()});
        const std::vector<double> actual(a.begin(), a.end()), expected(b.begin(), b.end());
        EXPECT_EQ(Compare(actual, expected, 2e-5), "")
            << "case " << i << ", side " << static_cast<int>(side);
      }
    }
  }
  EXPECT_GT(by_onednn, 100);
}

}  // namespace
}  // namespace braid::conformance
