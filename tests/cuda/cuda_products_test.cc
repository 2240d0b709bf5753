// Products, convolutions and pooling that are larger than operators' samples: of several tiles, of
// a depth that is split, and of windows that a warp shares; against the CPU's kernels.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_run.h"
#include "graph/op_registry.h"
#include "graph/ops/window.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid::conformance {
namespace {

class CudaProductsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }
  void Compare(const std::string& op, std::vector<Shape> inputs, Attrs attrs) {
    std::vector<TensorType> types;
    for (Shape& shape : inputs) types.push_back({DType::kF64, std::move(shape)});
    CompareTypes(op, std::move(types), std::move(attrs), 1e-11);
  }
  void CompareTypes(const std::string& op, std::vector<TensorType> inputs, Attrs attrs,
                    double tolerance) {
    OpCase c = {.def = ops_.Find(op), .attrs = std::move(attrs), .inputs = std::move(inputs)};
    ASSERT_NE(c.def, nullptr);
    c.low = -1;
    c.high = 1;
    const auto outputs = c.def->InferTypes(c.context());
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    c.outputs = *outputs;
    const std::vector<Array> drawn = DrawInputs(c);
    const auto expected = RunWhole(cpu_, c, drawn);
    const auto got = RunWhole(cuda_, c, drawn);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(conformance::Compare(got->at(0), expected->at(0), tolerance, 1), "") << op;
  }

  static Attrs Windows(WindowAxis axis, int64_t groups) {
    Attrs attrs;
    SetWindows(attrs, {axis, axis});
    attrs.Set("groups", groups);
    return attrs;
  }

 private:
  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry cpu_ = CpuKernels();
  const KernelRegistry& cuda_ = KernelsUnderTest();
};

TEST_F(CudaProductsTest, SeveralTiles) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const Shape a = transpose_a ? Shape{2, 45, 130} : Shape{2, 130, 45};
      const Shape b = transpose_b ? Shape{2, 67, 45} : Shape{2, 45, 67};
      Compare("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
    }
  }
}

TEST_F(CudaProductsTest, SplitDepth) {
  Compare("matmul", {{3, 70, 1111}, {3, 1111, 5}},
          {{"transpose_a", false}, {"transpose_b", false}});
  Compare("tensordot", {{2, 900, 5}, {2, 900, 66}}, {});
}

// What is added to a product, in every type, with operands that are aligned for a library and not.
TEST_F(CudaProductsTest, Addends) {
  for (const int64_t columns : {int64_t{72}, int64_t{67}}) {
    const Shape a = {130, 64}, b = {64, columns}, row = {columns}, whole = {130, columns};
    for (const bool is_wide : {false, true}) {
      for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        if (is_wide && SizeOf(dtype) != 2) continue;
        const DType result = is_wide ? DType::kF32 : dtype;
        const double narrow = dtype == DType::kF16 ? 2e-3 : 1.6e-2;
        const double wide = dtype == DType::kF64 ? 1e-12 : 1e-5;
        const double tolerance = SizeOf(result) == 2 ? narrow : wide;
        Attrs attrs;
        if (is_wide) attrs.Set("dtype", result);
        SCOPED_TRACE(testing::Message() << ToString(dtype) << " to " << ToString(result));
        CompareTypes("matmul_add", {{dtype, a}, {dtype, b}, {result, row}}, attrs, tolerance);
        CompareTypes("matmul_add", {{dtype, a}, {dtype, b}, {result, whole}}, attrs, tolerance);
        CompareTypes("matmul_add", {{dtype, a}, {dtype, b}, {result, whole}, {result, row}}, attrs,
                     tolerance);
      }
    }
  }
}

TEST_F(CudaProductsTest, Convolutions) {
  const WindowAxis axis = {.stride = 2, .dilation = 2, .pad_begin = 1, .pad_end = 2};
  const Shape x = {3, 132, 15, 14}, w = {70, 66, 3, 3}, y = {3, 70, 7, 7};
  Attrs attrs = Windows(axis, 2);
  Compare("conv", {x, w, {70}}, attrs);
  attrs.Set("space", std::vector<int64_t>{15, 14});
  Compare("conv_input_grad", {y, w}, attrs);
  Attrs of_weights = Windows(axis, 2);
  of_weights.Set("kernel", std::vector<int64_t>{3, 3});
  Compare("conv_weight_grad", {x, y}, of_weights);
}

TEST_F(CudaProductsTest, ConvolutionsOfManyWindows) {
  const WindowAxis axis = {.pad_begin = 1, .pad_end = 1};
  for (const int64_t groups : {int64_t{1}, int64_t{6}}) {
    const Shape x = {2, 6, 20, 19}, y = {2, 6, 20, 19}, w = {6, 6 / groups, 3, 3};
    Compare("conv", {x, w}, Windows(axis, groups));
    Attrs attrs = Windows(axis, groups);
    attrs.Set("kernel", std::vector<int64_t>{3, 3});
    Compare("conv_weight_grad", {x, y}, attrs);
  }
}

// All types but f64, in which cards may compute by a library: with channels as it likes them, and
// not. Wide results are of narrow operands, whose products are exact in f32.
TEST_F(CudaProductsTest, ConvolutionsInEveryType) {
  const WindowAxis axis = {.stride = 2, .pad_begin = 1, .pad_end = 1};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool is_wide : {false, true}) {
      if (is_wide && dtype == DType::kF32) continue;
      const DType result = is_wide ? DType::kF32 : dtype;
      const double narrow = dtype == DType::kF16 ? 2e-3 : 1.6e-2;
      const double tolerance = result == DType::kF32 ? 1e-5 : narrow;
      for (const int64_t channels : {int64_t{32}, int64_t{3}}) {
        SCOPED_TRACE(testing::Message() << ToString(dtype) << " to " << ToString(result) << ", "
                                        << channels << " channels");
        const TensorType x = {dtype, {2, channels, 11, 10}}, w = {dtype, {40, channels, 3, 3}};
        const TensorType y = {dtype, {2, 40, 6, 5}}, bias = {result, {40}};
        const auto attrs = [&](const char* name, std::vector<int64_t> sizes) {
          Attrs made = Windows(axis, 1);
          if (name != nullptr) made.Set(name, std::move(sizes));
          if (is_wide) made.Set("dtype", DType::kF32);
          return made;
        };
        CompareTypes("conv", {x, w, bias}, attrs(nullptr, {}), tolerance);
        CompareTypes("conv_input_grad", {y, w}, attrs("space", {11, 10}), tolerance);
        CompareTypes("conv_weight_grad", {x, y}, attrs("kernel", {3, 3}), tolerance);
      }
    }
  }
}

TEST_F(CudaProductsTest, LargeWindows) {
  const std::vector<int64_t> windows = {1, 2};
  Compare("avg_pool", {{2, 3, 17, 13}},
          {{"windows", windows}, {"divisor", std::string("elements")}});
  Compare("max_pool", {{2, 3, 17, 13}}, {{"windows", windows}, {"with_indices", false}});
}

}  // namespace
}  // namespace braid::conformance
