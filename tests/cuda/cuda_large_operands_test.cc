// CUDA kernels where operands are large: blocks instead of warps for rows,
// 16 bytes at a time, sums in parts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_layout.h"
#include "api/conformance/operator_run.h"
#include "graph/op_registry.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid::conformance {
namespace {

struct LargeCase {
  std::string op;
  std::vector<Shape> floating;     // the inputs, but for
  std::vector<TensorType> others;  // those with types of their own, which come second
  Attrs attrs = {};
  double low = -1, high = 1;
};

class CudaLargeOperandsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }
  OpCase CaseOf(const LargeCase& operands, DType floating) {
    OpCase c = {.def = ops_.Find(operands.op), .label = operands.op, .attrs = operands.attrs};
    for (const Shape& shape : operands.floating) {
      c.inputs.push_back({floating, shape});
      if (c.inputs.size() != 1) continue;
      c.inputs.insert(c.inputs.end(), operands.others.begin(), operands.others.end());
    }
    if (operands.floating.empty()) c.inputs = operands.others;
    auto outputs = c.def->InferTypes({c.attrs, c.inputs});
    EXPECT_TRUE(outputs.ok()) << operands.op << ": " << outputs.status();
    c.outputs = *outputs;
    c.low = operands.low;
    c.high = operands.high;
    c.label += " of " + c.inputs[0].ToString();
    return c;
  }
  void Compare(const OpCase& c, const std::vector<Array>& inputs, double tolerance) {
    const auto expected = RunWhole(cpu_, c, inputs), got = RunWhole(cuda_, c, inputs);
    ASSERT_TRUE(expected.ok()) << c.label << ": " << expected.status();
    ASSERT_TRUE(got.ok()) << c.label << ": " << got.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_EQ(conformance::Compare((*got)[i], (*expected)[i], tolerance, 1), "")
          << c.label << ", output " << i;
    }
  }
  // In every floating type.
  void Check(const LargeCase& operands) {
    for (const auto& [type, tolerance] :
         {std::pair(DType::kF64, 1e-12), std::pair(DType::kF32, 3e-5),
          std::pair(DType::kBF16, 2e-2), std::pair(DType::kF16, 3e-3)}) {
      const OpCase c = CaseOf(operands, type);
      Compare(c, DrawInputs(c), tolerance);
      if (operands.floating.empty()) return;
    }
  }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry cpu_ = CpuKernels();
  const KernelRegistry& cuda_ = KernelsUnderTest();
};

Attrs Over(std::vector<int64_t> axes) { return {{"axes", std::move(axes)}, {"keep_dims", false}}; }

// Whole groups of narrow numbers, of which a thread has several, and what is not whole.
TEST_F(CudaLargeOperandsTest, ElementByElement) {
  for (const int64_t columns : {int64_t{1000}, int64_t{1004}, int64_t{33}}) {
    const Shape x = {37, columns};
    Check({.op = "relu", .floating = {x}});
    Check({.op = "mul", .floating = {x, x}});
    Check({.op = "add", .floating = {x, {columns}}});
    Check({.op = "add", .floating = {{37, 1}, x}});
  }
}

TEST_F(CudaLargeOperandsTest, Reductions) {
  for (const std::string op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min",
                               "reduce_sum_square", "reduce_l1"}) {
    Check({op, {{3, 20008}}, {}, Over({1})});
    Check({op, {{70, 101}}, {}, Over({1})});
    Check({op, {{9, 1201}}, {}, Over({1})});
    Check({op, {{10000, 24}}, {}, Over({0})});
    Check({op, {{5000, 3}}, {}, Over({0})});
    Check({op, {{2, 600, 264}}, {}, Over({1})});
    Check({op, {{300, 7, 264}}, {}, Over({0, 2})});
    Check({op, {{4000, 8}}, {}, Over({1})});
    if (op != "reduce_mean") Check({op, {}, {{DType::kI64, {6000, 5}}}, Over({0})});
    if (op != "reduce_mean") Check({op, {}, {{DType::kI32, {3, 9000}}}, Over({1})});
  }
  Check({"reduce_prod", {{5, 300}}, {}, Over({1}), 0.99, 1.01});
  Check({"reduce_prod", {{1200, 8}}, {}, Over({0}), 0.999, 1.001});
  Check({"reduce_max", {}, {{DType::kU8, {3, 5000}}}, Over({1})});
}

// f32 of narrow numbers, as the sums of narrow gradients are: they are not rounded.
TEST_F(CudaLargeOperandsTest, SumsOfNarrowNumbers) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const Shape& shape : std::vector<Shape>{{900, 264}, {900, 3}, {5, 3}}) {
      for (const int64_t axis : {0, 1}) {
        Attrs attrs = Over({axis});
        attrs.Set("dtype", DType::kF32);
        const OpCase c = CaseOf({"reduce_sum", {shape}, {}, attrs}, type);
        ASSERT_EQ(c.outputs[0].dtype, DType::kF32);
        Compare(c, DrawInputs(c), 3e-5);
      }
    }
  }
}

TEST_F(CudaLargeOperandsTest, Extremes) {
  for (const std::string op : {"argmax", "argmin"}) {
    for (const bool last : {false, true}) {
      const Attrs of_rows = {{"axis", int64_t{1}}, {"last", last}};
      const Attrs of_columns = {{"axis", int64_t{0}}, {"last", last}};
      Check({op, {{3, 3000}}, {}, of_rows});
      Check({op, {{300, 10}}, {}, of_rows});
      Check({op, {{700, 5}}, {}, of_columns});
      Check({op, {}, {{DType::kI32, {3, 3000}}}, of_rows});
      Check({op, {}, {{DType::kU8, {3000, 3}}}, of_columns});
    }
  }
}

TEST_F(CudaLargeOperandsTest, Scans) {
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      const auto along = [&](int64_t axis) {
        return Attrs{{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}};
      };
      Check({"cumsum", {{5, 3001}}, {}, along(1)});
      Check({"cumsum", {{2, 3001, 3}}, {}, along(1)});
      Check({"cumprod", {{5, 1700}}, {}, along(1), 0.99, 1.01});
      Check({"cumprod", {{1700, 5}}, {}, along(0), 0.99, 1.01});
      Check({"cumsum", {}, {{DType::kI64, {5, 3001}}}, along(1)});
      Check({"cumprod_grad", {{5, 90}, {5, 90}}, {}, along(1), 0.9, 1.1});
    }
  }
}

TEST_F(CudaLargeOperandsTest, Softmax) {
  const Attrs plain = {{"causal", false}, {"scale", 2.0}};
  const Attrs causal = {{"causal", true}, {"scale", 0.5}};
  for (const Shape& shape : {Shape{20, 64}, Shape{3, 1536}, Shape{2, 2051}}) {
    Check({"softmax", {shape}, {}, plain});
    Check({"softmax_grad", {shape, shape}, {}, plain});
    Check({"log_softmax", {shape}, {}});
    Check({"log_softmax_grad", {shape, shape}, {}});
    const Shape rows = {shape[0]};
    Check({"sum_exp", {shape, rows}, {}});
    const TensorType labels = {DType::kI32, rows};
    const Attrs smooth = {{"ignore_index", int64_t{2}}, {"label_smoothing", 0.25}};
    const std::string sparse = "sparse_softmax_cross_entropy", dense = "softmax_cross_entropy";
    Check({sparse, {shape, rows, rows}, {labels}, smooth, 0.5, 2});
    Check({sparse + "_grad", {shape, rows, rows, rows}, {labels}, smooth, 0.5, 2});
    Check({dense, {shape, shape, rows, rows}, {}, {}, 0.5, 2});
    Check({dense + "_grad", {shape, shape, rows, rows, rows}, {}, {}, 0.5, 2});
  }
  Check({"softmax", {{2, 40, 40}}, {}, causal});
  Check({"softmax_grad", {{2, 40, 40}, {2, 40, 40}}, {}, causal});
}

// What is masked counts nothing, wherever in a row it is.
TEST_F(CudaLargeOperandsTest, SoftmaxOfMaskedElements) {
  for (const int64_t size : {7, 64, 2048}) {
    const OpCase c =
        CaseOf({"softmax", {{3, size}}, {}, {{"causal", false}, {"scale", 1.0}}}, DType::kF32);
    std::vector<double> x(3 * size, -INFINITY);
    x[0] = 1;
    x[2 * size - 1] = -3;
    for (int64_t i = 2 * size; i < 3 * size; i += 3) x[i] = 0.01 * static_cast<double>(i % 50);
    Compare(c, {FromNumbers(DType::kF32, {3, size}, x)}, 1e-5);
  }
}

TEST_F(CudaLargeOperandsTest, RowNorms) {
  const Attrs epsilon = {{"epsilon", 1e-3}};
  for (const Shape& shape : {Shape{700, 64}, Shape{70, 1536}, Shape{130, 37}}) {
    const Shape rows = {shape[0]}, size = {shape[1]};
    Check({"layer_norm", {shape, size, size}, {}, epsilon});
    Check({"layer_norm_grad", {shape, size, rows, rows, shape}, {}});
    Check({"rms_norm", {shape, size}, {}, epsilon});
    Check({"rms_norm_grad", {shape, size, rows, shape}, {}});
  }
}

TEST_F(CudaLargeOperandsTest, GroupNorms) {
  const Attrs attrs = {{"epsilon", 1e-3}, {"groups", int64_t{2}}};
  for (const Shape& shape : {Shape{3, 6, 40, 36}, Shape{40, 8, 5}}) {
    const Shape channels = {shape[1]}, groups = {shape[0], 2};
    Check({"group_norm", {shape, channels, channels}, {}, attrs});
    Check({"group_norm_grad", {shape, channels, groups, groups, shape}, {}, attrs});
  }
}

TEST_F(CudaLargeOperandsTest, BatchNorms) {
  for (const Shape& shape :
       {Shape{24, 3, 40, 40}, Shape{60, 5, 7, 7}, Shape{3000, 5}, Shape{300, 7, 3}}) {
    const Shape c = {shape[1]};
    for (const bool relu : {false, true}) {
      const Attrs attrs = {{"epsilon", 1e-3}, {"training", false}, {"relu", relu}};
      std::vector<Shape> norm = {shape, c, c, c, c}, sums = {shape, c, c, shape};
      std::vector<Shape> dx = {shape, c, c, c, shape, c, c};
      if (relu) {
        norm.push_back(shape);
        sums.insert(sums.end(), {c, c});
        dx.push_back(c);
      }
      Check({"batch_norm", norm, {}, attrs, 0.1, 1});
      Check({"batch_norm_sums", sums, {}, attrs, 0.1, 1});
      Check({"batch_norm_dx", dx, {}, {{"epsilon", 1e-3}, {"relu", relu}}, 0.1, 1});
    }
    Check({"channel_sum", {shape}, {}});
    Check({"batch_moment", {shape, c}, {}});
  }
}

}  // namespace
}  // namespace braid::conformance
