// Every operator that takes channels in blocks on CPUs, by the samples of its row in the table:
// every signature and element type as ops_conformance_test tries them of plain operands, and the
// whole beside the plain operator's.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_layout.h"
#include "compiler/plan/cpu_layouts.h"
#include "tests/conformance/print_coverage.h"

namespace braid::conformance {
namespace {

using compiler::BlockedSample;
using compiler::CpuLayout;
using compiler::CpuLayouts;
using compiler::kNarrowBlock, compiler::kWholeBlock, compiler::kWideBlock;

// [n, c, space...] to [n, c / channels, space..., channels], `of` those of a block.
Array Block(const Array& plain, int64_t of) {
  const int64_t channels = compiler::ChannelsInBlock(plain.shape()[1], of);
  const Shape shape = compiler::BlockedShape(plain.shape(), of);
  Array blocked(plain.dtype(), shape);
  const auto element = static_cast<int64_t>(SizeOf(plain.dtype()));
  const int64_t images = plain.shape()[0], blocks = shape[1];
  const int64_t elements = plain.shape().num_elements();
  const int64_t pixels = elements / (images * blocks * channels);
  const std::byte* from = plain.bytes();
  std::byte* to = blocked.mutable_bytes();
  for (int64_t at = 0; at < elements; ++at) {
    const int64_t pixel = at % pixels, lane = at / pixels % channels;
    const int64_t block = at / (pixels * channels);
    const int64_t target = (block * pixels + pixel) * channels + lane;
    std::memcpy(to + target * element, from + at * element, element);
  }
  return blocked;
}

class BlockedOperatorTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    PrintCoverage(*rows_);
    rows_->clear();
  }

  static CpuLayout Row() {
    for (CpuLayout& row : CpuLayouts()) {
      if (row.op == GetParam()) return row;
    }
    return {};
  }

  // A case of a sample, whose floating type is `dtype`.
  static OpCase CaseOf(const OpDef& def, const OpSample& sample, DType dtype) {
    OpCase c = {.def = &def,
                .label = def.name(),
                .attrs = sample.attrs,
                .inputs = sample.inputs,
                .low = sample.low,
                .high = sample.high};
    for (TensorType& input : c.inputs) {
      if (IsFloating(input.dtype)) input.dtype = dtype;
    }
    const auto outputs = def.InferTypes(c.context());
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (outputs.ok()) c.outputs = *outputs;
    return c;
  }

  // The operator in blocks beside the plain one.
  void ExpectEqualsPlain(const CpuLayout& row, int64_t block, const OpSample& sample, DType dtype,
                         double tolerance) const {
    const OpDef &plain_def = *plain_ops_.Find(row.op), &def = *ops_.Find(row.op);
    const OpCase plain = CaseOf(plain_def, sample, dtype);
    const OpCase blocked = CaseOf(def, BlockedSample(plain_def, row.blocks, block, sample), dtype);
    const std::vector<Array> inputs = DrawInputs(plain);
    std::vector<Array> blocked_inputs = inputs;
    for (int64_t input : compiler::BlockedOperands(blocked.attrs, compiler::kBlockedInputs)) {
      blocked_inputs[input] = Block(inputs[input], block);
    }
    const auto want = RunRanks(kernels_, plain, inputs, {.layouts = AllBroadcast(plain)});
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = RunWhole(kernels_, blocked, blocked_inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<Array> outputs = (*want)[0].outputs;
    for (int64_t output : compiler::BlockedOperands(blocked.attrs, compiler::kBlockedOutputs)) {
      outputs[output] = Block(outputs[output], block);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(Compare((*got)[i], Numbers(outputs[i]), tolerance), "")
          << blocked.attrs.ToString() << ", result " << i;
    }
  }

  const OpRegistry plain_ops_ = BuiltinOps();
  const OpRegistry ops_ = compiler::WithCpuLayouts(plain_ops_);
  const KernelRegistry kernels_ = CpuKernels();
  static std::map<std::string, OperatorCoverage>* const rows_;
};

std::map<std::string, OperatorCoverage>* const BlockedOperatorTest::rows_ =
    new std::map<std::string, OperatorCoverage>;

TEST_P(BlockedOperatorTest, IsConformant) {
  OperatorCoverage& row = (*rows_)[GetParam()];
  row.samples = static_cast<int>(3 * Row().samples.size());  // blocks of 8, 16, all channels
  row.gradient = "the plain operator has them";
  ExpectConformant(OperatorChecks(*ops_.Find(GetParam()), kernels_, row, [](const OpCase& c) {
    return compiler::HasChannelBlocks(c.attrs);
  }));
}

TEST_P(BlockedOperatorTest, EqualsThePlainOperator) {
  const CpuLayout row = Row();
  ASSERT_FALSE(row.samples.empty());
  for (const OpSample& sample : row.samples) {
    for (const int64_t block : {kNarrowBlock, kWideBlock, kWholeBlock}) {
      ExpectEqualsPlain(row, block, sample, DType::kF64, 1e-12);
      ExpectEqualsPlain(row, block, sample, DType::kF32, 1e-5);
    }
  }
}

std::vector<std::string> NamesOfTheTable() {
  std::vector<std::string> names;
  for (const CpuLayout& row : CpuLayouts()) names.push_back(row.op);
  return names;
}

INSTANTIATE_TEST_SUITE_P(CpuLayouts, BlockedOperatorTest, testing::ValuesIn(NamesOfTheTable()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::conformance
