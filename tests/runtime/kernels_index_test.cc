// What the conformance suite does not draw: negative and wrong indices, several updates of one
// element, NaNs and equal elements in an order, and results that are written out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

using Ints = std::vector<int64_t>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kAllTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                               DType::kI32, DType::kI64, DType::kU8,   DType::kBool};

Values Iota(int64_t n) {
  Values values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

Values ResultOf(KernelCase& kernel) {
  const absl::Status status = kernel.Run();
  EXPECT_TRUE(status.ok()) << status;
  return kernel.Output();
}

Values Pad(const Values& x, Attrs attrs) {
  const int64_t before = attrs.Ints("before")[0], after = attrs.Ints("after")[0];
  const auto n = static_cast<int64_t>(x.size());
  const int64_t interior = attrs.Has("interior") ? (n - 1) * attrs.Ints("interior")[0] : 0;
  KernelCase kernel("pad", std::move(attrs));
  kernel.In(DType::kF32, {n}, x).Out(DType::kF32, {n + before + after + interior});
  return ResultOf(kernel);
}

TEST(PadKernelTest, Modes) {
  const Values x = {1, 2, 3};
  const auto mode = [&](const char* name, int64_t before, int64_t after) {
    return Pad(x, {{"before", Ints{before}}, {"after", Ints{after}}, {"mode", name}});
  };
  EXPECT_EQ(mode("reflect", 2, 2), (Values{3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(mode("reflect", 5, 0), (Values{2, 1, 2, 3, 2, 1, 2, 3}));
  EXPECT_EQ(mode("edge", 2, 1), (Values{1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(mode("wrap", 4, 2), (Values{3, 1, 2, 3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(mode("edge", -2, 2), (Values{3, 3, 3}));
  EXPECT_EQ(mode("constant", -1, 1), (Values{2, 3, 0}));
  EXPECT_EQ(Pad(x, {{"before", Ints{1}}, {"after", Ints{-1}}, {"value", 7.0}}), (Values{7, 1, 2}));
  EXPECT_EQ(Pad(x, {{"before", Ints{1}}, {"after", Ints{0}}, {"interior", Ints{1}}}),
            (Values{0, 1, 0, 2, 0, 3}));
  EXPECT_EQ(Pad({5}, {{"before", Ints{2}}, {"after", Ints{1}}, {"mode", "reflect"}}),
            (Values{5, 5, 5, 5}));
}

TEST(SliceKernelTest, StepsOfEveryType) {
  for (DType dtype : kAllTypes) {
    SCOPED_TRACE(std::string(ToString(dtype)));
    const Values x = dtype == DType::kBool ? Values{1, 0, 0, 1, 1, 0, 1, 0} : Iota(8);
    KernelCase kernel("slice",
                      {{"begin", Ints{1, 3}}, {"size", Ints{2, 2}}, {"step", Ints{-1, -2}}});
    kernel.In(dtype, {2, 4}, x).Out(dtype, {2, 2});
    EXPECT_EQ(ResultOf(kernel), (Values{x[7], x[5], x[3], x[1]}));
  }
}

TEST(TriangleKernelTest, DiagonalsBeyondTheMatrix) {
  const auto triangle = [](int64_t diagonal, bool upper) {
    KernelCase kernel("triangle", {{"diagonal", diagonal}, {"upper", upper}});
    kernel.In(DType::kI64, {2, 3}, {1, 2, 3, 4, 5, 6}).Out(DType::kI64, {2, 3});
    return ResultOf(kernel);
  };
  EXPECT_EQ(triangle(0, false), (Values{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(triangle(1, true), (Values{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(triangle(-1, false), (Values{0, 0, 0, 4, 0, 0}));
  EXPECT_EQ(triangle(std::numeric_limits<int64_t>::max(), false), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(triangle(std::numeric_limits<int64_t>::min(), false), Values(6, 0.0));
  EXPECT_EQ(triangle(std::numeric_limits<int64_t>::max(), true), Values(6, 0.0));
}

TEST(IndexKernelTest, NegativeIndicesCountFromTheEnd) {
  KernelCase gather("gather", {{"axis", int64_t{0}}});
  gather.In(DType::kF32, {3, 2}, Iota(6)).In(DType::kI64, {2}, {-1, -3}).Out(DType::kF32, {2, 2});
  EXPECT_EQ(ResultOf(gather), (Values{4, 5, 0, 1}));
  KernelCase elements("gather_elements", {{"axis", int64_t{1}}});
  elements.In(DType::kBool, {2, 2}, {1, 0, 0, 1}).In(DType::kI32, {2, 1}, {-1, -2});
  EXPECT_EQ(ResultOf(elements.Out(DType::kBool, {2, 1})), (Values{0, 0}));
  KernelCase nd("gather_nd", {{"batch_dims", int64_t{0}}});
  nd.In(DType::kU8, {2, 3}, Iota(6)).In(DType::kI64, {2, 2}, {-1, -1, 0, -2});
  EXPECT_EQ(ResultOf(nd.Out(DType::kU8, {2})), (Values{5, 1}));
  KernelCase hot("one_hot", {{"axis", int64_t{0}}, {"depth", int64_t{3}}, {"dtype", DType::kI32}});
  hot.In(DType::kI32, {2}, {-1, 0}).Out(DType::kI32, {3, 2});
  EXPECT_EQ(ResultOf(hot), (Values{0, 1, 0, 0, 1, 0}));
}

TEST(IndexKernelTest, SaysWhichIndexIsWrong) {
  KernelCase elements("gather_elements", {{"axis", int64_t{0}}});
  elements.In(DType::kF32, {2, 2}, Iota(4)).In(DType::kI32, {2, 2}, {0, 1, 1, 2});
  EXPECT_EQ(elements.Out(DType::kF32, {2, 2}).Run().message(),
            "gather_elements 'test/gather_elements': index 2 at position 3 is outside [-2, 2)");
  KernelCase nd("scatter_nd", {{"batch_dims", int64_t{0}}, {"reduction", "none"}});
  nd.In(DType::kF32, {2, 3}, Iota(6)).In(DType::kI64, {1, 2}, {1, -4}).In(DType::kF32, {1}, {1});
  EXPECT_EQ(nd.Out(DType::kF32, {2, 3}).Run().message(),
            "scatter_nd 'test/scatter_nd': index -4 at position 1 is outside [-3, 3)");
  // The second half of the indices: the place is that in the whole.
  OperandSpec half = KernelCase::Operand(DType::kI64, {4});
  half.region = {{2}, {2}};
  OperandSpec rows = KernelCase::Operand(DType::kF32, {4});
  rows.region = half.region;
  KernelCase gather("gather", {{"axis", int64_t{0}}});
  gather.In(DType::kF32, {3}, Iota(3)).In(half, {0, 3}).Out(rows);
  EXPECT_EQ(gather.Run().message(),
            "gather 'test/gather': index 3 at position 3 is outside [-3, 3)");
}

TEST(ScatterKernelTest, TheLastOfSeveralStaysAndSumsAreOfAll) {
  for (DType dtype : kAllTypes) {
    SCOPED_TRACE(std::string(ToString(dtype)));
    KernelCase kernel("scatter_elements", {{"axis", int64_t{0}}, {"reduction", "none"}});
    kernel.In(dtype, {4}, {1, 1, 1, 1}).In(DType::kI64, {4}, {2, 0, -2, 0});
    EXPECT_EQ(ResultOf(kernel.In(dtype, {4}, {1, 1, 0, 0}).Out(dtype, {4})), (Values{0, 1, 0, 1}));
    if (dtype == DType::kBool) continue;
    KernelCase sum("gather_elements_grad", {{"axis", int64_t{0}}, {"shape", Ints{4}}});
    sum.In(DType::kI64, {4}, {2, 0, -2, 0}).In(dtype, {4}, {1, 2, 3, 4}).Out(dtype, {4});
    EXPECT_EQ(ResultOf(sum), (Values{6, 0, 4, 0}));
    KernelCase product("scatter_elements", {{"axis", int64_t{0}}, {"reduction", "mul"}});
    product.In(dtype, {2}, {3, 5}).In(DType::kI32, {3}, {1, 1, 1});
    EXPECT_EQ(ResultOf(product.In(dtype, {3}, {2, 2, 2}).Out(dtype, {2})), (Values{3, 40}));
  }
}

TEST(ScatterKernelTest, ExtremesKeepNans) {
  for (const char* reduction : {"max", "min"}) {
    KernelCase kernel("scatter_nd", {{"batch_dims", int64_t{0}}, {"reduction", reduction}});
    kernel.In(DType::kF32, {3}, {1, kNan, 2}).In(DType::kI64, {3, 1}, {0, 1, 2});
    const Values y = ResultOf(kernel.In(DType::kF32, {3}, {kNan, 5, 3}).Out(DType::kF32, {3}));
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], std::string(reduction) == "max" ? 3 : 2);
  }
}

TEST(SortKernelTest, NansAreLargestAndEqualOnesKeepTheirOrder) {
  const Values x = {2, kNan, -0.0, -kInfinity, 0.0, kNan, kInfinity, 2};
  for (DType dtype : kFloatTypes) {
    SCOPED_TRACE(std::string(ToString(dtype)));
    const auto order = [&](bool descending) {
      KernelCase kernel("sort", {{"axis", int64_t{0}}, {"descending", descending}});
      kernel.In(dtype, {8}, x).Out(dtype, {8}).Out(DType::kI32, {8});
      ResultOf(kernel);
      return kernel.Output(1);
    };
    EXPECT_EQ(order(false), (Values{3, 2, 4, 0, 7, 6, 1, 5}));
    EXPECT_EQ(order(true), (Values{1, 5, 6, 0, 7, 2, 4, 3}));
  }
}

TEST(SortKernelTest, LongRowsOfEveryType) {
  constexpr int64_t kSize = 5000;
  for (DType dtype : kAllTypes) {
    for (bool descending : {false, true}) {
      SCOPED_TRACE(std::string(ToString(dtype)));
      const bool is_bool = dtype == DType::kBool, has_sign = !is_bool && dtype != DType::kU8;
      const Values x = RandomValues({kSize}, dtype, 1, has_sign ? -90 : 0, is_bool ? 2 : 90);
      std::vector<int64_t> expected(kSize);
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
        return descending ? x[a] > x[b] : x[a] < x[b];
      });
      KernelCase sort("sort", {{"axis", int64_t{0}}, {"descending", descending}});
      sort.In(dtype, {kSize}, x).Out(dtype, {kSize}).Out(DType::kI32, {kSize});
      const Values values = ResultOf(sort), indices = sort.Output(1);
      for (int64_t i = 0; i < kSize; ++i) {
        ASSERT_EQ(indices[i], static_cast<double>(expected[i])) << i;
        ASSERT_EQ(values[i], x[expected[i]]) << i;
      }
      KernelCase top("top_k", {{"axis", int64_t{0}}, {"k", int64_t{7}}, {"largest", descending}});
      top.In(dtype, {kSize}, x).Out(dtype, {7}).Out(DType::kI32, {7});
      EXPECT_EQ(ResultOf(top), Values(values.begin(), values.begin() + 7));
      EXPECT_EQ(top.Output(1), Values(indices.begin(), indices.begin() + 7));
    }
  }
}

}  // namespace
}  // namespace braid
