// Every operator that takes one block of all channels on cards (channels last), by the samples of
// its row in the table and by larger ones: beside the CPU's kernel of the plain operator, and in
// every signature.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_run.h"
#include "compiler/plan/channel_layouts.h"
#include "graph/op_registry.h"
#include "graph/ops/window.h"
#include "tests/conformance/in_blocks.h"
#include "tests/conformance/print_coverage.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid::conformance {
namespace {

using compiler::ChannelLayout;
using compiler::kWholeBlock;

std::vector<ChannelLayout> RowsOnCards() {
  std::vector<ChannelLayout> rows;
  for (ChannelLayout& row : compiler::ChannelLayouts()) {
    if (row.is_on_cards) rows.push_back(std::move(row));
  }
  return rows;
}
std::vector<std::string> NamesOnCards() {
  std::vector<std::string> names;
  for (const ChannelLayout& row : RowsOnCards()) names.push_back(row.op);
  return names;
}

class ChannelsLastTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }
  static ChannelLayout Row(const std::string& op) {
    for (ChannelLayout& row : RowsOnCards()) {
      if (row.op == op) return std::move(row);
    }
    return {};
  }

  // In f64, f32, bf16 and f16; the numbers beside x also in f32 where they need not be narrow.
  void Compare(const std::string& op, const OpSample& sample) {
    struct Precision {
      DType floating;
      double tolerance;
    };
    for (const auto& [floating, tolerance] :
         {Precision{DType::kF64, 1e-12}, Precision{DType::kF32, 2e-5},
          Precision{DType::kBF16, 2e-2}, Precision{DType::kF16, 3e-3}}) {
      CompareCase(op, sample, floating, floating, tolerance);
      const bool is_narrow = IsNarrow(floating) && !plain_ops_.Find(op)->keeps_narrow().empty();
      if (is_narrow) CompareCase(op, sample, floating, DType::kF32, tolerance);
    }
  }

  const OpRegistry plain_ops_ = BuiltinOps();
  const OpRegistry ops_ = compiler::WithChannelLayouts(plain_ops_);
  const KernelRegistry& cuda_ = KernelsUnderTest();

 private:
  void CompareCase(const std::string& op, const OpSample& sample, DType floating, DType numbers,
                   double tolerance) {
    const OpDef &plain_def = *plain_ops_.Find(op), &def = *ops_.Find(op);
    const auto with_types = [&](OpSample of) {
      for (size_t i = 0; i < of.inputs.size(); ++i) {
        const bool is_data =
            std::ranges::count(plain_def.keeps_narrow(), static_cast<int>(i)) > 0 ||
            plain_def.keeps_narrow().empty();
        of.inputs[i].dtype = is_data ? floating : numbers;
      }
      return of;
    };
    const OpSample whole = BlockedSample(plain_def, Row(op).blocks, kWholeBlock, sample);
    const OpCase plain = CaseOf(plain_def, with_types(sample)),
                 last = CaseOf(def, with_types(whole));
    std::vector<Array> inputs = DrawInputs(plain);
    const auto expected = RunWhole(cpu_, plain, inputs);
    for (const int64_t input : compiler::BlockedOperands(last.attrs, compiler::kBlockedInputs)) {
      inputs[input] = InBlocks(inputs[input], kWholeBlock);
    }
    const auto got = RunWhole(cuda_, last, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<std::vector<double>> outputs = *expected;
    for (const int64_t i : compiler::BlockedOperands(last.attrs, compiler::kBlockedOutputs)) {
      const Array second = FromNumbers(DType::kF64, plain.outputs[i].shape, outputs[i]);
      outputs[i] = Numbers(InBlocks(second, kWholeBlock));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(conformance::Compare((*got)[i], outputs[i], tolerance, 1), "")
          << op << last.attrs.ToString() << ", " << ToString(floating) << " and "
          << ToString(numbers) << ", result " << i;
    }
  }

  const KernelRegistry cpu_ = CpuKernels();
};

class OperatorWithChannelsLast : public ChannelsLastTest,
                                 public testing::WithParamInterface<std::string> {};

TEST_P(OperatorWithChannelsLast, EqualsThePlainOperator) {
  const ChannelLayout row = Row(GetParam());
  ASSERT_FALSE(row.samples.empty());
  for (const OpSample& sample : row.samples) Compare(row.op, sample);
}

TEST_P(OperatorWithChannelsLast, IsConformant) {
  OperatorCoverage row;
  ExpectConformant(OperatorChecks(*ops_.Find(GetParam()), cuda_, row, [](const OpCase& c) {
    return compiler::ChannelBlockOf(c.attrs) == kWholeBlock;
  }));
}

INSTANTIATE_TEST_SUITE_P(ChannelLayouts, OperatorWithChannelsLast,
                         testing::ValuesIn(NamesOnCards()),
                         [](const auto& info) { return info.param; });

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

// So many pixels that several blocks sum them up, and more channels than a block's, in whole packs
// and not.
TEST_F(ChannelsLastTest, NormsOfManyPixels) {
  for (const int64_t channels : {int64_t{48}, int64_t{520}, int64_t{37}}) {
    const Shape x = {6, channels, 19, 21};
    for (const int64_t groups : {int64_t{0}, int64_t{3}}) {
      const TensorType numbers = F32({channels});
      const TensorType sums = groups == 0 ? numbers : F32({groups, channels});
      Attrs attrs = {{"epsilon", 1e-3}};
      if (groups > 0) attrs.Set("groups", groups);
      const auto sample = [&](std::vector<TensorType> inputs, Attrs of) {
        return OpSample{.inputs = std::move(inputs), .attrs = std::move(of), .low = 0.1, .high = 1};
      };
      Attrs training = attrs;
      training.Set("training", true);
      training.Set("relu", true);
      Attrs only_groups;
      if (groups > 0) only_groups.Set("groups", groups);
      Compare("channel_sum", sample({F32(x)}, only_groups));
      Compare("batch_moment", sample({F32(x), sums}, only_groups));
      Compare("batch_norm", sample({F32(x), sums, sums, numbers, numbers, F32(x)}, training));
      Compare("batch_norm_sums", sample({F32(x), sums, sums, F32(x), numbers, numbers}, training));
      attrs.Set("relu", true);
      Compare("batch_norm_dx",
              sample({F32(x), sums, sums, numbers, F32(x), sums, sums, numbers}, attrs));
    }
  }
}

// Of several tiles, and of a depth that is split.
TEST_F(ChannelsLastTest, LargeConvolutions) {
  Attrs attrs;
  const WindowAxis axis = {.stride = 2, .dilation = 2, .pad_begin = 1, .pad_end = 2};
  SetWindows(attrs, {axis, axis});
  attrs.Set("groups", int64_t{2});
  const TensorType x = F32({3, 132, 15, 14}), w = F32({70, 66, 3, 3}), y = F32({3, 70, 7, 7});
  Compare("conv", {.inputs = {x, w, F32({70})}, .attrs = attrs});
  Attrs of_input = attrs, of_weights = attrs;
  of_input.Set("space", std::vector<int64_t>{15, 14});
  Compare("conv_input_grad", {.inputs = {y, w}, .attrs = of_input});
  of_weights.Set("kernel", std::vector<int64_t>{3, 3});
  Compare("conv_weight_grad", {.inputs = {x, y}, .attrs = of_weights});
}

// Windows that warps share, indices of what is largest, and a volume.
TEST_F(ChannelsLastTest, Pooling) {
  Attrs attrs;
  const WindowAxis axis = {.stride = 3, .pad_begin = 2, .pad_end = 3};
  SetWindows(attrs, {axis, axis});
  attrs.Set("kernel", std::vector<int64_t>{9, 8});
  attrs.Set("ceil_mode", false);
  Attrs largest = attrs, mean = attrs;
  largest.Set("with_indices", true);
  mean.Set("divisor", std::string("padded"));
  Compare("max_pool", {.inputs = {F32({2, 24, 20, 17})}, .attrs = largest});
  Compare("avg_pool", {.inputs = {F32({2, 24, 20, 17})}, .attrs = mean});
  Attrs adaptive = {{"windows", std::vector<int64_t>{2, 3, 1}},
                    {"divisor", std::string("elements")}};
  Compare("avg_pool", {.inputs = {F32({2, 5, 4, 7, 3})}, .attrs = adaptive});
}

}  // namespace
}  // namespace braid::conformance
