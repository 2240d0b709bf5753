// Products of bytes beside loops in 64 bits: every pair of types, zero points of all kinds, sums
// that no f32 holds and one that wraps around, by whichever code the kernel takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_run.h"
#include "compiler/plan/channel_blocks.h"
#include "compiler/plan/channel_layouts.h"
#include "graph/op_registry.h"
#include "graph/ops/window.h"

namespace braid::conformance {
namespace {

using Bytes = std::vector<double>;

struct Operand {
  DType dtype = DType::kU8;
  Shape shape = {};
  Bytes numbers = {}, zeros = {};  // zeros: none, one, or one for each output

  double zero(size_t output) const {
    return zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : output];
  }
};

// Most of them large, and the ends among them.
Bytes NumbersOf(DType dtype, int64_t count, int seed) {
  const int low = dtype == DType::kU8 ? 0 : -128;
  Bytes numbers(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t mixed = i * 7919 + seed * 104729;
    numbers[i] = static_cast<double>(mixed % 5 == 0 ? low + mixed / 5 % 256 : low + 255);
  }
  return numbers;
}

Operand MakeOperand(DType dtype, Shape shape, int64_t zeros, int seed) {
  Operand operand = {.dtype = dtype, .shape = shape};
  operand.numbers = NumbersOf(dtype, shape.num_elements(), seed);
  for (int64_t i = 0; i < zeros; ++i) {
    operand.zeros.push_back((dtype == DType::kU8 ? 0 : -128) + (37 * (i + seed)) % 256);
  }
  return operand;
}

double Wrapped(int64_t sum) { return static_cast<int32_t>(static_cast<uint32_t>(sum)); }

class IntegerOpsTest : public testing::Test {
 protected:
  // The operator's result in numbers, of operands in one block of all channels if `is_blocked`.
  Bytes ResultOf(const char* op, const Operand& a, const Operand& b, Attrs attrs,
                 bool is_blocked = false) {
    OpCase c = {.def = ops_.Find(op), .label = op, .attrs = std::move(attrs)};
    std::vector<Array> arrays;
    const auto add = [&](DType dtype, const Shape& shape, const Bytes& numbers) {
      c.inputs.push_back({dtype, shape});
      arrays.push_back(FromNumbers(dtype, shape, numbers));
    };
    add(a.dtype, a.shape, a.numbers);
    add(b.dtype, b.shape, b.numbers);
    const auto add_zeros = [&](const Operand& of) {
      add(of.dtype, {static_cast<int64_t>(of.zeros.size())}, of.zeros);
    };
    if (!a.zeros.empty()) add_zeros(a);
    if (!b.zeros.empty()) add_zeros(b);
    if (is_blocked) {
      c.attrs.Set(compiler::kBlockedInputs, std::vector<int64_t>{0});
      c.attrs.Set(compiler::kBlockedOutputs, std::vector<int64_t>{0});
      c.attrs.Set(compiler::kChannelBlock, compiler::kWholeBlock);
      c.inputs[0].shape = compiler::BlockedShape(a.shape, compiler::kWholeBlock);
      arrays[0] = FromNumbers(a.dtype, c.inputs[0].shape, ChannelsLast(a.shape, a.numbers));
    }
    const auto types = c.def->InferTypes(c.context());
    EXPECT_TRUE(types.ok()) << types.status();
    if (!types.ok()) return {};
    c.outputs = *types;
    const auto results = RunWhole(kernels_, c, arrays);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? (*results)[0] : Bytes();
  }

  static Bytes ChannelsLast(const Shape& shape, const Bytes& numbers) {
    Bytes last(numbers.size());
    const int64_t channels = shape[1];
    const int64_t pixels = shape.num_elements() / shape[0] / channels;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const int64_t image = i / pixels / channels, channel = i / pixels % channels;
      last[(image * pixels + i % pixels) * channels + channel] = numbers[i];
    }
    return last;
  }

  void ExpectConvolution(const Operand& x, const Operand& w, const WindowAxis& axis,
                         int64_t groups) {
    Attrs attrs;
    SetWindows(attrs, {axis, axis});
    attrs.Set("groups", groups);
    const int64_t outputs = w.shape[0], in = w.shape[1];
    WindowAxis rows = axis, columns = axis;
    rows.kernel = w.shape[2];
    columns.kernel = w.shape[3];
    const int64_t height = *CountWindows(x.shape[2], rows);
    const int64_t width = *CountWindows(x.shape[3], columns);
    const Shape y = {x.shape[0], outputs, height, width};
    Bytes expected;
    for (int64_t i = 0; i < y.num_elements(); ++i) {
      const int64_t column = i % width, row = i / width % height;
      const int64_t output = i / width / height % outputs, image = i / width / height / outputs;
      int64_t sum = 0;
      for (int64_t tap = 0; tap < in * w.shape[2] * w.shape[3]; ++tap) {
        const int64_t tx = tap % w.shape[3], ty = tap / w.shape[3] % w.shape[2];
        const int64_t channel = tap / w.shape[3] / w.shape[2];
        const int64_t at_y = row * axis.stride - axis.pad_begin + ty * axis.dilation;
        const int64_t at_x = column * axis.stride - axis.pad_begin + tx * axis.dilation;
        if (at_y < 0 || at_y >= x.shape[2] || at_x < 0 || at_x >= x.shape[3]) continue;
        const int64_t of_x = output / (outputs / groups) * in + channel;
        const int64_t pixel = ((image * x.shape[1] + of_x) * x.shape[2] + at_y) * x.shape[3] + at_x;
        const int64_t weight = output * in * w.shape[2] * w.shape[3] + tap;
        sum += static_cast<int64_t>((x.numbers[pixel] - x.zero(0)) *
                                    (w.numbers[weight] - w.zero(output)));
      }
      expected.push_back(Wrapped(sum));
    }
    EXPECT_EQ(ResultOf("conv_integer", x, w, attrs), expected);
    EXPECT_EQ(ResultOf("conv_integer", x, w, attrs, /*is_blocked=*/true),
              ChannelsLast(y, expected));
  }

  void ExpectMatmul(const Operand& a, const Operand& b, bool transpose_b) {
    const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[transpose_b ? 0 : 1];
    Bytes expected;
    for (int64_t i = 0; i < m * n; ++i) {
      int64_t sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = transpose_b ? i % n * k + j : j * n + i % n;
        sum += static_cast<int64_t>((a.numbers[i / n * k + j] - a.zero(0)) *
                                    (b.numbers[at] - b.zero(i % n)));
      }
      expected.push_back(Wrapped(sum));
    }
    EXPECT_EQ(ResultOf("matmul_integer", a, b, {{"transpose_b", transpose_b}}), expected);
  }

  const OpRegistry ops_ = compiler::WithChannelLayouts(BuiltinOps());
  const KernelRegistry kernels_ = CpuKernels();
};

constexpr DType kBytes[] = {DType::kU8, DType::kI8};

TEST_F(IntegerOpsTest, ConvolutionsAreExact) {
  struct Case {
    Shape x, w;
    WindowAxis axis;
    int64_t groups;
  };
  const Case cases[] = {
      {{2, 8, 5, 6}, {8, 8, 3, 3}, {.stride = 1, .pad_begin = 1, .pad_end = 1}, 1},
      {{1, 3, 9, 7}, {5, 3, 2, 3}, {.stride = 2, .dilation = 2, .pad_begin = 2, .pad_end = 1}, 1},
      {{2, 16, 4, 4}, {16, 1, 3, 3}, {.stride = 1, .pad_begin = 1, .pad_end = 1}, 16},
      {{1, 12, 4, 3}, {8, 3, 1, 2}, {.stride = 1}, 4},
      // 4,608 products of up to 255 * 255 in a sum.
      {{1, 512, 3, 3}, {6, 512, 3, 3}, {.stride = 1, .pad_begin = 1, .pad_end = 1}, 1},
  };
  for (const Case& each : cases) {
    for (const DType of_x : kBytes) {
      for (const DType of_w : kBytes) {
        for (const auto& [x_zeros, w_zeros] :
             {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {1, 1}, {1, each.w[0]}}) {
          SCOPED_TRACE(testing::Message()
                       << each.x.ToString() << " " << each.w.ToString() << " " << ToString(of_x)
                       << " " << ToString(of_w) << " zeros " << x_zeros << " " << w_zeros);
          ExpectConvolution(MakeOperand(of_x, each.x, x_zeros, 1),
                            MakeOperand(of_w, each.w, w_zeros, 2), each.axis, each.groups);
        }
      }
    }
  }
}

TEST_F(IntegerOpsTest, ProductsOfMatricesAreExact) {
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{1, 64, 48},
                                {5, 7, 3},
                                {9, 4608, 6},
                                {3, 40000, 2}}) {  // sums wrap around
    for (const DType of_a : kBytes) {
      for (const DType of_b : kBytes) {
        for (const bool transpose_b : {false, true}) {
          for (const auto& [a_zeros, b_zeros] :
               {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {1, 1}, {1, n}}) {
            SCOPED_TRACE(testing::Message() << m << "x" << k << "x" << n << " " << ToString(of_a)
                                            << " " << ToString(of_b) << " " << transpose_b
                                            << " zeros " << a_zeros << " " << b_zeros);
            const Shape b = transpose_b ? Shape{n, k} : Shape{k, n};
            ExpectMatmul(MakeOperand(of_a, {m, k}, a_zeros, 3), MakeOperand(of_b, b, b_zeros, 4),
                         transpose_b);
          }
        }
      }
    }
  }
}

// Weights that stay the same are packed once; their zero points are read each time.
TEST_F(IntegerOpsTest, ZeroPointsMayChangeWhereWeightsDoNot) {
  const auto whole = [](DType dtype, const Shape& shape) {
    return OperandSpec{.dtype = dtype, .logical = shape, .region = Region::Whole(shape)};
  };
  KernelSpec spec;
  spec.op = spec.name = "matmul_integer";
  spec.attrs = {{"transpose_b", false}};
  spec.inputs = {whole(DType::kU8, {1, 2}), whole(DType::kU8, {2, 1}), whole(DType::kU8, {1}),
                 whole(DType::kU8, {1})};
  spec.outputs = {whole(DType::kI32, {1, 1})};
  auto kernel = kernels_.Create(spec);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  uint8_t a[] = {10, 20}, b[] = {200, 3}, zero_of_a = 5, zero_of_b = 0;
  int32_t c = 0;
  void* inputs[] = {a, b, &zero_of_a, &zero_of_b};
  void* outputs[] = {&c};
  for (const auto& [of_a, of_b] : {std::pair{5, 0}, {5, 100}, {9, 100}, {9, 1}}) {
    zero_of_a = static_cast<uint8_t>(of_a);
    zero_of_b = static_cast<uint8_t>(of_b);
    const uint64_t unchanged = of_b == 0 ? 0 : 2;  // the weights, after the first run
    const absl::Status status = (*kernel)->Run(
        {.step = 0, .unchanged_inputs = unchanged, .inputs = inputs, .outputs = outputs});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(c, (10 - of_a) * (200 - of_b) + (20 - of_a) * (3 - of_b)) << of_a << " " << of_b;
  }
}

TEST_F(IntegerOpsTest, WrongOperandsAreErrors) {
  const OpDef& conv = *ops_.Find("conv_integer");
  Attrs attrs;
  SetWindows(attrs, {WindowAxis(), WindowAxis()});
  attrs.Set("groups", int64_t{1});
  const auto error = [&](std::vector<TensorType> inputs) {
    return std::string(
        conv.InferTypes({.attrs = attrs, .inputs = inputs, .outputs = {}}).status().message());
  };
  const TensorType x = {DType::kU8, {2, 3, 4, 4}}, w = {DType::kI8, {5, 3, 1, 1}};
  EXPECT_EQ(error({x, w, {DType::kU8, {}}, {DType::kI8, {5}}}), "");
  EXPECT_NE(error({{DType::kI32, x.shape}, w}).find("u8 or i8 are needed"), std::string::npos);
  EXPECT_NE(error({x, w, {DType::kI8, {}}}).find("the zero point of a is i8[]; u8[1] is needed"),
            std::string::npos)
      << error({x, w, {DType::kI8, {}}});
  EXPECT_NE(error({x, w, {DType::kU8, {}}, {DType::kI8, {4}}})
                .find("the zero point of b is i8[4]; i8[1] or i8[5] is needed"),
            std::string::npos)
      << error({x, w, {DType::kU8, {}}, {DType::kI8, {4}}});
}

}  // namespace
}  // namespace braid::conformance
