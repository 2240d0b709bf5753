// Every operator that takes channels in blocks on CPUs, by the samples of its row in the table:
// every signature and element type as ops_conformance_test tries them of plain operands, and the
// whole beside the plain operator's.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_layout.h"
#include "compiler/plan/channel_layouts.h"
#include "tests/conformance/in_blocks.h"
#include "tests/conformance/print_coverage.h"

namespace braid::conformance {
namespace {

using compiler::BlockedSample;
using compiler::ChannelLayout;
using compiler::ChannelLayouts;
using compiler::kNarrowBlock, compiler::kWholeBlock, compiler::kWideBlock;

class BlockedOperatorTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    PrintCoverage(*rows_);
    rows_->clear();
  }

  static ChannelLayout Row() {
    for (ChannelLayout& row : ChannelLayouts()) {
      if (row.op == GetParam()) return row;
    }
    return {};
  }

  // The operator in blocks beside the plain one.
  void ExpectEqualsPlain(const ChannelLayout& row, int64_t block, const OpSample& sample,
                         DType dtype, double tolerance) const {
    const OpDef &plain_def = *plain_ops_.Find(row.op), &def = *ops_.Find(row.op);
    const OpCase plain = CaseOf(plain_def, WithFloating(sample, dtype));
    const OpSample in_blocks = BlockedSample(plain_def, row.blocks, block, sample);
    const OpCase blocked = CaseOf(def, WithFloating(in_blocks, dtype));
    const std::vector<Array> inputs = DrawInputs(plain);
    std::vector<Array> blocked_inputs = inputs;
    for (int64_t input : compiler::BlockedOperands(blocked.attrs, compiler::kBlockedInputs)) {
      blocked_inputs[input] = InBlocks(inputs[input], block);
    }
    const auto want = RunRanks(kernels_, plain, inputs, {.layouts = AllBroadcast(plain)});
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = RunWhole(kernels_, blocked, blocked_inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<Array> outputs = (*want)[0].outputs;
    for (int64_t output : compiler::BlockedOperands(blocked.attrs, compiler::kBlockedOutputs)) {
      outputs[output] = InBlocks(outputs[output], block);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(Compare((*got)[i], Numbers(outputs[i]), tolerance), "")
          << blocked.attrs.ToString() << ", result " << i;
    }
  }

  const OpRegistry plain_ops_ = BuiltinOps();
  const OpRegistry ops_ = compiler::WithChannelLayouts(plain_ops_);
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
  const ChannelLayout row = Row();
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
  for (const ChannelLayout& row : ChannelLayouts()) names.push_back(row.op);
  return names;
}

INSTANTIATE_TEST_SUITE_P(ChannelLayouts, BlockedOperatorTest, testing::ValuesIn(NamesOfTheTable()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::conformance
