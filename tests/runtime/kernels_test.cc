// Elementwise, shape and reduce kernels against plain loops.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernels/kernel.h"
#include "tests/runtime/kernel_case.h"

namespace braid {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct UnaryCase {
  const char* op;
  std::function<double(double)> f;
  double low, high;
  Attrs attrs;
};

double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double GeluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

TEST(ElementwiseTest, Unary) {
  const UnaryCase cases[] = {
      {"neg", [](double x) { return -x; }, -3, 3, {}},
      {"exp", [](double x) { return std::exp(x); }, -5, 5, {}},
      {"log", [](double x) { return std::log(x); }, 0.1, 9, {}},
      {"sqrt", [](double x) { return std::sqrt(x); }, 0, 9, {}},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 9, {}},
      {"tanh", [](double x) { return std::tanh(x); }, -4, 4, {}},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -6, 6, {}},
      {"relu", [](double x) { return std::max(x, 0.0); }, -2, 2, {}},
      {"gelu", GeluErf, -4, 4, {{"approximate", false}}},
      {"gelu", GeluTanh, -4, 4, {{"approximate", true}}},
      {"abs", [](double x) { return std::abs(x); }, -2, 2, {}},
      {"square", [](double x) { return x * x; }, -2, 2, {}},
      {"reciprocal", [](double x) { return 1 / x; }, 0.2, 2, {}},
      {"sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : 0.0; }, -2, 2, {}},
      {"scale", [](double x) { return x * 0.75; }, -2, 2, {{"factor", 0.75}}},
      {"add_scalar", [](double x) { return x + 0.75; }, -2, 2, {{"value", 0.75}}},
  };
  for (DType dtype : kFloatTypes) {
    for (const UnaryCase& c : cases) {
      for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 37}, Shape{0, 5}}) {
        SCOPED_TRACE(std::string(c.op) + " " + std::string(ToString(dtype)));
        const Values x = RandomValues(shape, dtype, 1, c.low, c.high);
        Values expected;
        for (double v : x) expected.push_back(c.f(v));
        KernelCase plain(c.op, c.attrs);
        plain.In(dtype, shape, x).Out(dtype, shape);
        ASSERT_TRUE(plain.Run().ok());
        // gelu cancels where it is small: its error is relative to x.
        ExpectNear(plain.Output(), expected, 6 * Epsilon(dtype),
                   std::string(c.op) == "gelu" ? 4 : 0.1);
        KernelCase inplace(c.op, c.attrs);
        inplace.In(dtype, shape, x).Out(dtype, shape).Inplace(0);
        ASSERT_TRUE(inplace.Run().ok());
        EXPECT_EQ(inplace.Output(), plain.Output());
      }
    }
  }
}

TEST(ElementwiseTest, NaNAndInfinityPass) {
  for (DType dtype : kFloatTypes) {
    const Values x = {kNaN, kInf, -kInf, 0, -1};
    const auto apply = [&](const char* op, Attrs attrs = {}) {
      KernelCase kernel(op, std::move(attrs));
      kernel.In(dtype, {5}, x).Out(dtype, {5});
      EXPECT_TRUE(kernel.Run().ok());
      return kernel.Output();
    };
    ExpectNear(apply("relu"), {kNaN, kInf, 0, 0, 0}, 0);
    ExpectNear(apply("exp"), {kNaN, kInf, 0, 1, std::exp(-1.0)}, Epsilon(dtype));
    ExpectNear(apply("log"), {kNaN, kInf, kNaN, -kInf, kNaN}, 0);
    ExpectNear(apply("tanh"), {kNaN, 1, -1, 0, std::tanh(-1.0)}, 2 * Epsilon(dtype));
    ExpectNear(apply("sigmoid"), {kNaN, 1, 0, 0.5, 1 / (1 + std::exp(1.0))}, Epsilon(dtype));
    KernelCase maximum("maximum");
    maximum.In(dtype, {4}, {kNaN, 1, kNaN, 2}).In(dtype, {4}, {1, kNaN, kNaN, 3}).Out(dtype, {4});
    ASSERT_TRUE(maximum.Run().ok());
    ExpectNear(maximum.Output(), {kNaN, kNaN, kNaN, 3}, 0);
    KernelCase reduce("reduce_max", {{"axes", std::vector<int64_t>{1}}, {"keep_dims", false}});
    reduce.In(dtype, {2, 3}, {1, kNaN, 2, 4, -kInf, 3}).Out(dtype, {2});
    ASSERT_TRUE(reduce.Run().ok());
    ExpectNear(reduce.Output(), {kNaN, 4}, 0);
  }
}

// Index of an operand's element when the result's index is given.
int64_t BroadcastFlat(const Shape& operand, const std::vector<int64_t>& index) {
  int64_t flat = 0;
  const size_t skip = index.size() - operand.rank();
  for (int i = 0; i < operand.rank(); ++i) {
    flat = flat * operand[i] + (operand[i] == 1 ? 0 : index[i + skip]);
  }
  return flat;
}

struct BroadcastCase {
  Shape a, b, out;
};
const BroadcastCase kBroadcasts[] = {
    {{}, {}, {}},
    {{5, 7}, {5, 7}, {5, 7}},
    {{5, 7}, {}, {5, 7}},
    {{}, {33}, {33}},
    {{5, 7}, {7}, {5, 7}},
    {{5, 7}, {5, 1}, {5, 7}},
    {{5, 1}, {1, 7}, {5, 7}},
    {{2, 3, 5}, {3, 1}, {2, 3, 5}},
    {{2, 1, 5}, {4, 3, 1}, {}},  // out filled in below
    {{2, 3, 4, 5}, {2, 1, 4, 1}, {2, 3, 4, 5}},
    {{0, 7}, {7}, {0, 7}},
    {{1, 1}, {4, 1}, {4, 1}},
};

struct BinaryCase {
  const char* op;
  std::function<double(double, double)> f;
  double low = -2, high = 2;
  Attrs attrs = {};
  bool integers = false;
  bool compares = false;
};

TEST(ElementwiseTest, BinaryBroadcasts) {
  const auto gelu_grad = [](auto gelu) {
    return [gelu](double x, double dy) { return dy * (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6; };
  };
  const BinaryCase cases[] = {
      {.op = "add", .f = [](double a, double b) { return a + b; }, .integers = true},
      {.op = "sub", .f = [](double a, double b) { return a - b; }, .integers = true},
      {.op = "mul", .f = [](double a, double b) { return a * b; }, .integers = true},
      {.op = "div", .f = [](double a, double b) { return a / b; }, .low = 0.5},
      {.op = "pow", .f = [](double a, double b) { return std::pow(a, b); }, .low = 0.5},
      {.op = "maximum", .f = [](double a, double b) { return std::max(a, b); }, .integers = true},
      {.op = "minimum", .f = [](double a, double b) { return std::min(a, b); }, .integers = true},
      {.op = "relu_grad", .f = [](double y, double dy) { return y > 0 ? dy : 0; }},
      {.op = "tanh_grad", .f = [](double y, double dy) { return dy * (1 - y * y); }},
      {.op = "sigmoid_grad", .f = [](double y, double dy) { return dy * y * (1 - y); }},
      {.op = "gelu_grad", .f = gelu_grad(GeluErf), .attrs = {{"approximate", false}}},
      {.op = "gelu_grad", .f = gelu_grad(GeluTanh), .attrs = {{"approximate", true}}},
      {.op = "equal", .f = std::equal_to<double>(), .integers = true, .compares = true},
      {.op = "not_equal", .f = std::not_equal_to<double>(), .integers = true, .compares = true},
      {.op = "less", .f = std::less<double>(), .integers = true, .compares = true},
      {.op = "less_equal", .f = std::less_equal<double>(), .integers = true, .compares = true},
      {.op = "greater", .f = std::greater<double>(), .integers = true, .compares = true},
      {.op = "greater_equal",
       .f = std::greater_equal<double>(),
       .integers = true,
       .compares = true},
  };
  for (DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    for (const BinaryCase& c : cases) {
      if (!IsFloating(dtype) && !c.integers) continue;
      for (BroadcastCase shapes : kBroadcasts) {
        if (shapes.a == Shape{2, 1, 5}) shapes = {{2, 1, 5}, {3, 1}, {2, 3, 5}};
        SCOPED_TRACE(std::string(c.op) + " " + std::string(ToString(dtype)) + " " +
                     shapes.a.ToString() + " " + shapes.b.ToString());
        const Values a = RandomValues(shapes.a, dtype, 1, c.low, c.high);
        const Values b = RandomValues(shapes.b, dtype, 2, c.low, c.high);
        Values expected(shapes.out.num_elements());
        for (size_t i = 0; i < expected.size(); ++i) {
          const std::vector<int64_t> index = IndexOf(shapes.out, static_cast<int64_t>(i));
          expected[i] = c.f(a[BroadcastFlat(shapes.a, index)], b[BroadcastFlat(shapes.b, index)]);
        }
        const bool is_difference = std::string(c.op) == "gelu_grad";
        const double tolerance = std::max(4 * Epsilon(dtype), is_difference ? 1e-8 : 0.0);
        KernelCase kernel(c.op, c.attrs);
        kernel.In(dtype, shapes.a, a).In(dtype, shapes.b, b);
        kernel.Out(c.compares ? DType::kBool : dtype, shapes.out);
        ASSERT_TRUE(kernel.Run().ok());
        ExpectNear(kernel.Output(), expected, tolerance);
        if (c.compares) continue;
        for (int input : {0, 1}) {
          if ((input == 0 ? shapes.a : shapes.b) != shapes.out) continue;
          KernelCase inplace(c.op, c.attrs);
          inplace.In(dtype, shapes.a, a).In(dtype, shapes.b, b).Out(dtype, shapes.out);
          inplace.Inplace(input);
          ASSERT_TRUE(inplace.Run().ok());
          EXPECT_EQ(inplace.Output(), kernel.Output());
        }
      }
    }
  }
}

TEST(ElementwiseTest, IntegerDivisionNeverTraps) {
  KernelCase div("div");
  const double lowest = std::numeric_limits<int32_t>::min();
  div.In(DType::kI32, {4}, {7, -7, 5, lowest}).In(DType::kI32, {4}, {2, 2, 0, -1});
  div.Out(DType::kI32, {4});
  ASSERT_TRUE(div.Run().ok());
  EXPECT_EQ(div.Output(), (Values{3, -3, 0, lowest}));
  KernelCase pow("pow");
  pow.In(DType::kI64, {5}, {2, -3, -1, 5, 0}).In(DType::kI64, {5}, {10, 3, -5, -1, 0});
  pow.Out(DType::kI64, {5});
  ASSERT_TRUE(pow.Run().ok());
  EXPECT_EQ(pow.Output(), (Values{1024, -27, -1, 0, 1}));
}

TEST(ElementwiseTest, Logic) {
  const auto apply = [](const char* op, const Values& b, const Shape& shape) {
    KernelCase kernel(op);
    kernel.In(DType::kBool, {4}, {0, 0, 1, 1}).In(DType::kBool, shape, b);
    kernel.Out(DType::kBool, {4});
    EXPECT_TRUE(kernel.Run().ok());
    return kernel.Output();
  };
  EXPECT_EQ(apply("logical_and", {0, 1, 0, 1}, {4}), (Values{0, 0, 0, 1}));
  EXPECT_EQ(apply("logical_or", {0, 1, 0, 1}, {4}), (Values{0, 1, 1, 1}));
  EXPECT_EQ(apply("logical_and", {1}, {}), (Values{0, 0, 1, 1}));
  KernelCase logical_not("logical_not");
  logical_not.In(DType::kBool, {2}, {0, 1}).Out(DType::kBool, {2});
  ASSERT_TRUE(logical_not.Run().ok());
  EXPECT_EQ(logical_not.Output(), (Values{1, 0}));
}

TEST(ElementwiseTest, Where) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI64, DType::kU8}) {
    const Shape shapes[][3] = {{{3, 5}, {3, 5}, {3, 5}}, {{3, 1}, {3, 5}, {}}, {{5}, {}, {3, 1}}};
    for (const auto& [condition_shape, a_shape, b_shape] : shapes) {
      const Values a = RandomValues(a_shape, dtype, 1, 0, 100);
      const Values b = RandomValues(b_shape, dtype, 2, 0, 100);
      Values condition(condition_shape.num_elements());
      for (size_t i = 0; i < condition.size(); ++i) condition[i] = (i * 7 / 3) % 2;
      KernelCase kernel("where");
      kernel.In(DType::kBool, condition_shape, condition).In(dtype, a_shape, a);
      kernel.In(dtype, b_shape, b).Out(dtype, {3, 5});
      ASSERT_TRUE(kernel.Run().ok());
      Values expected(15);
      for (int64_t i = 0; i < 15; ++i) {
        const auto index = IndexOf({3, 5}, i);
        expected[i] = condition[BroadcastFlat(condition_shape, index)] != 0
                          ? a[BroadcastFlat(a_shape, index)]
                          : b[BroadcastFlat(b_shape, index)];
      }
      EXPECT_EQ(kernel.Output(), expected);
    }
  }
}

TEST(ElementwiseTest, CastsEveryPair) {
  const DType types[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16,
                         DType::kI32, DType::kI64, DType::kU8,   DType::kBool};
  for (DType from : types) {
    for (DType to : types) {
      SCOPED_TRACE(std::string(ToString(from)) + " to " + std::string(ToString(to)));
      Values x = {0, 1, 2, 3.5, 100, 1, 0};
      if (from == DType::kBool) x = {0, 1, 1, 1, 1, 1, 0};
      KernelCase kernel("cast", {{"dtype", to}});
      kernel.In(from, {7}, x).Out(to, {7});
      ASSERT_TRUE(kernel.Run().ok());
      Values expected;
      for (double v : x) {
        const double stored = Rounded(from, v);
        expected.push_back(to == DType::kBool ? stored != 0 : Rounded(to, stored));
      }
      EXPECT_EQ(kernel.Output(), expected);
    }
  }
  KernelCase out_of_range("cast", {{"dtype", DType::kI32}});
  out_of_range.In(DType::kF32, {4}, {kNaN, kInf, -1e20, -2.5}).Out(DType::kI32, {4});
  ASSERT_TRUE(out_of_range.Run().ok());
  EXPECT_EQ(out_of_range.Output(), (Values{0, 2147483647.0, -2147483648.0, -2}));
}

TEST(ElementwiseTest, AccumulateAddsOverMicroBatches) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64}) {
    KernelCase kernel("accumulate");
    const Values x = RandomValues({600}, dtype, 3, 1, 5);
    kernel.In(dtype, {600}, x).Out(dtype, {600});
    Values expected(600, 0.0);
    for (int64_t act = 0; act < 3; ++act) {
      kernel.run().micro_batch = act;
      ASSERT_TRUE(kernel.Run().ok());
      for (size_t i = 0; i < x.size(); ++i) expected[i] = Rounded(dtype, expected[i] + x[i]);
    }
    EXPECT_EQ(kernel.Output(), expected);
  }
}

using Ints = std::vector<int64_t>;

TEST(ShapeTest, Transpose) {
  const std::pair<Shape, Ints> cases[] = {{{5, 7}, {1, 0}},
                                          {{40, 33}, {1, 0}},
                                          {{2, 3, 4, 5}, {0, 2, 1, 3}},
                                          {{2, 3, 4, 5}, {3, 1, 0, 2}},
                                          {{2, 17, 18}, {0, 2, 1}},
                                          {{3, 1, 4}, {2, 0, 1}},
                                          {{3, 0}, {1, 0}},
                                          {{2, 3, 4}, {0, 1, 2}}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8, DType::kI64}) {
    for (const auto& [shape, perm] : cases) {
      const Values x = RandomValues(shape, dtype, 1, 0, 100);
      Shape out = shape;
      for (int i = 0; i < shape.rank(); ++i) out[i] = shape[static_cast<int>(perm[i])];
      Values expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const Ints index = IndexOf(out, static_cast<int64_t>(i));
        Ints source(index.size());
        for (size_t d = 0; d < index.size(); ++d) source[perm[d]] = index[d];
        expected[i] = x[FlatOf(shape, source)];
      }
      KernelCase kernel("transpose", {{"perm", perm}});
      kernel.In(dtype, shape, x).Out(dtype, out);
      ASSERT_TRUE(kernel.Run().ok());
      EXPECT_EQ(kernel.Output(), expected) << shape.ToString();
    }
  }
}

TEST(ShapeTest, IdentityReshapeBroadcastTo) {
  const Values x = RandomValues({2, 6}, DType::kI32, 1, 0, 100);
  for (const char* op : {"identity", "stop_gradient", "reshape"}) {
    KernelCase kernel(op, {{"shape", Ints{3, 4}}});
    kernel.In(DType::kI32, {2, 6}, x).Out(DType::kI32, {3, 4});
    ASSERT_TRUE(kernel.Run().ok());
    EXPECT_EQ(kernel.Output(), x);
  }
  for (const Shape& in : {Shape{}, Shape{5}, Shape{3, 1}, Shape{2, 1, 5}, Shape{2, 3, 5}}) {
    const Shape out = {2, 3, 5};
    const Values values = RandomValues(in, DType::kF32, 2);
    KernelCase kernel("broadcast_to", {{"shape", Ints{2, 3, 5}}});
    kernel.In(DType::kF32, in, values).Out(DType::kF32, out);
    ASSERT_TRUE(kernel.Run().ok());
    Values expected(30);
    for (int64_t i = 0; i < 30; ++i) expected[i] = values[BroadcastFlat(in, IndexOf(out, i))];
    EXPECT_EQ(kernel.Output(), expected);
  }
}

// Every part of a split axis gives its share of the slice; they add up to all of it.
TEST(ShapeTest, SliceOfASplitAxisIsPartial) {
  const Shape in = {7, 9}, out = {4, 5};
  const Values x = RandomValues(in, DType::kF32, 1);
  const Values expected = Cut(x, in, {{2, 3}, out});
  for (int axis : {0, 1}) {
    for (int64_t parts : {1, 2, 3, 10}) {
      Values sum(20, 0.0);
      for (int64_t part = 0; part < parts; ++part) {
        OperandSpec input = KernelCase::Operand(DType::kF32, in);
        const Interval interval = SplitEvenly(in[axis], parts, part);
        input.region.offset[axis] = interval.offset;
        input.region.size[axis] = interval.size;
        OperandSpec output = KernelCase::Operand(DType::kF32, out);
        output.partial = true;
        KernelCase kernel("slice", {{"begin", Ints{2, 3}}, {"size", Ints{4, 5}}});
        kernel.In(input, Cut(x, in, input.region)).Out(output);
        ASSERT_TRUE(kernel.Run().ok());
        const Values share = kernel.Output();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += share[i];
      }
      EXPECT_EQ(sum, expected);
    }
  }
}

TEST(ShapeTest, SliceOfTheBatchUnderMicroBatches) {
  // The batch of 8 arrives in 4 acts; the slice [3, 6) of it is P, whole in every act.
  const Shape in = {8, 2};
  const Values x = RandomValues(in, DType::kF64, 1);
  Values sum(6, 0.0);
  for (int64_t act = 0; act < 4; ++act) {
    OperandSpec input = KernelCase::Operand(DType::kF64, in);
    input.region.size[0] = 2;
    input.micro_batch_axis = 0;
    input.micro_batch_stride = 2;
    KernelCase kernel("slice", {{"begin", Ints{3, 0}}, {"size", Ints{3, 2}}});
    kernel.In(input, Cut(x, in, {{2 * act, 0}, {2, 2}})).Out(DType::kF64, {3, 2});
    kernel.run().micro_batch = act;
    ASSERT_TRUE(kernel.Run().ok());
    for (size_t i = 0; i < 6; ++i) sum[i] += kernel.Output()[i];
  }
  EXPECT_EQ(sum, Cut(x, in, {{3, 0}, {3, 2}}));
}

TEST(ShapeTest, PadOfRegions) {
  const Shape in = {4, 3}, out = {4, 8};
  const Values x = RandomValues(in, DType::kBF16, 1);
  Values whole(32, 0.0);
  for (int64_t i = 0; i < 12; ++i) whole[i / 3 * 8 + i % 3 + 2] = x[i];
  for (int64_t part = 0; part < 3; ++part) {
    const Interval rows = SplitEvenly(4, 3, part);
    OperandSpec input = KernelCase::Operand(DType::kBF16, in);
    OperandSpec output = KernelCase::Operand(DType::kBF16, out);
    for (OperandSpec* operand : {&input, &output}) {
      operand->region.offset[0] = rows.offset;
      operand->region.size[0] = rows.size;
    }
    KernelCase kernel("pad", {{"before", Ints{0, 2}}, {"after", Ints{0, 3}}});
    kernel.In(input, Cut(x, in, input.region)).Out(output);
    ASSERT_TRUE(kernel.Run().ok());
    EXPECT_EQ(kernel.Output(), Cut(whole, out, output.region));
  }
}

TEST(ShapeTest, ConcatAndSplitAreInverse) {
  for (DType dtype : {DType::kF32, DType::kI64, DType::kBool}) {
    for (int64_t axis : {0, 1, 2}) {
      Shape whole = {2, 3, 4};
      const Ints sizes = {1, 0, 5};
      whole[static_cast<int>(axis)] = 6;
      const Values x = RandomValues(whole, dtype, 1, 0, 2);
      KernelCase split("split", {{"axis", axis}, {"sizes", sizes}});
      KernelCase concat("concat", {{"axis", axis}});
      split.In(dtype, whole, x);
      int64_t at = 0;
      for (int64_t size : sizes) {
        Region part = Region::Whole(whole);
        part.offset[axis] = at;
        part.size[static_cast<int>(axis)] = size;
        at += size;
        split.Out(dtype, part.size);
        concat.In(dtype, part.size, Cut(x, whole, part));
      }
      concat.Out(dtype, whole);
      ASSERT_TRUE(split.Run().ok());
      ASSERT_TRUE(concat.Run().ok());
      EXPECT_EQ(concat.Output(), x);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(split.Output(i), concat.Input(i));
    }
  }
}

TEST(ShapeTest, BlocksPackAndUnpack) {
  const Shape shape = {2, 5, 3};
  const Values x = RandomValues(shape, DType::kF32, 1);
  KernelCase pack("block_pack", {{"axis", int64_t{1}}, {"parts", int64_t{3}}});
  pack.In(DType::kF32, shape, x).Out(DType::kF32, shape);
  ASSERT_TRUE(pack.Run().ok());
  Values expected;
  for (int64_t part = 0; part < 3; ++part) {
    const Interval interval = SplitEvenly(5, 3, part);
    const Values block = Cut(x, shape, {{0, interval.offset, 0}, {2, interval.size, 3}});
    expected.insert(expected.end(), block.begin(), block.end());
  }
  EXPECT_EQ(pack.Output(), expected);
  KernelCase unpack("block_unpack", {{"axis", int64_t{1}}, {"parts", int64_t{3}}});
  unpack.In(DType::kF32, shape, expected).Out(DType::kF32, shape);
  ASSERT_TRUE(unpack.Run().ok());
  EXPECT_EQ(unpack.Output(), x);
}

TEST(ReduceTest, AgainstPlainLoops) {
  const Shape shapes[] = {{70}, {5, 7}, {3, 40, 33}, {2, 3, 4, 5}, {3, 0, 2}, {300, 3}};
  for (DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    for (const Shape& shape : shapes) {
      for (int mask = 0; mask < 1 << shape.rank(); ++mask) {
        Ints axes;
        Shape out = shape;
        double count = 1;
        for (int axis = 0; axis < shape.rank(); ++axis) {
          if ((mask >> axis & 1) == 0) continue;
          axes.push_back(axis);
          out[axis] = 1;
          count *= shape[axis];
        }
        const Values x = RandomValues(shape, dtype, 1, -50, 50);
        for (const std::string op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min"}) {
          if (op == "reduce_mean" && (!IsFloating(dtype) || count == 0)) continue;
          if (count == 0 && !IsFloating(dtype)) continue;
          SCOPED_TRACE(op + " " + std::string(ToString(dtype)) + " " + shape.ToString() + " " +
                       std::to_string(mask));
          const double identity = op == "reduce_max" ? -kInf : op == "reduce_min" ? kInf : 0;
          std::vector<long double> exact(out.num_elements(), identity);
          for (size_t i = 0; i < x.size(); ++i) {
            Ints index = IndexOf(shape, static_cast<int64_t>(i));
            for (int64_t axis : axes) index[axis] = 0;
            long double& to = exact[FlatOf(out, index)];
            const long double value = x[i];
            to = op == "reduce_max"   ? std::max(to, value)
                 : op == "reduce_min" ? std::min(to, value)
                 : op == "reduce_sum" ? to + value
                                      : to + value / count;
          }
          KernelCase kernel(op, {{"axes", axes}, {"keep_dims", true}});
          kernel.In(dtype, shape, x).Out(dtype, out);
          ASSERT_TRUE(kernel.Run().ok());
          // Terms of up to 50, added in some order.
          ExpectNear(kernel.Output(), Values(exact.begin(), exact.end()), 8 * Epsilon(dtype),
                     50 * std::sqrt(count + 1));
        }
      }
    }
  }
}

TEST(ReduceTest, MeanDividesByTheLogicalCount) {
  OperandSpec input = KernelCase::Operand(DType::kF32, {10, 2});
  input.region.size[0] = 4;
  KernelCase kernel("reduce_mean", {{"axes", Ints{0, 1}}, {"keep_dims", false}});
  kernel.In(input, Values(8, 5.0)).Out(DType::kF32, {});
  ASSERT_TRUE(kernel.Run().ok());
  EXPECT_EQ(kernel.Output(), Values{2});
}

TEST(ReduceTest, LongSumsStayAccurate) {
  const Values x = RandomValues({1000000}, DType::kF32, 1, 0, 1);
  double expected = 0;
  for (double v : x) expected += v;
  for (const Shape& shape : {Shape{1000000}, Shape{250000, 4}}) {
    KernelCase kernel("reduce_sum", {{"axes", Ints{0}}, {"keep_dims", false}});
    kernel.In(DType::kF32, shape, x);
    kernel.Out(DType::kF32, shape.rank() == 1 ? Shape{} : Shape{4});
    ASSERT_TRUE(kernel.Run().ok());
    double sum = 0;
    for (double v : kernel.Output()) sum += v;
    EXPECT_NEAR(sum, expected, 1e-6 * expected);
  }
}

TEST(ReduceTest, Argmax) {
  KernelCase kernel("argmax", {{"axis", int64_t{1}}});
  kernel.In(DType::kF16, {2, 3, 2}, {1, 5, 3, 5, 3, kNaN, -1, 0, -2, 0, -3, -kInf});
  kernel.Out(DType::kI32, {2, 2});
  ASSERT_TRUE(kernel.Run().ok());
  EXPECT_EQ(kernel.Output(), (Values{1, 2, 0, 0}));
}

}  // namespace
}  // namespace braid
