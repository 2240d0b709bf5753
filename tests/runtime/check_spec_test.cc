// What CpuKernels().Check refuses before a kernel's own factory sees it.
#include "runtime/kernels/check_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace braid {
namespace {

using ::testing::HasSubstr;

OperandSpec Operand(Shape logical, Region region) {
  OperandSpec operand;
  operand.logical = std::move(logical);
  operand.region = std::move(region);
  return operand;
}
OperandSpec Whole(Shape logical) { return Operand(logical, Region::Whole(logical)); }

std::string Refusal(const KernelSpec& spec) {
  static const KernelRegistry& kernels = *new KernelRegistry(CpuKernels());
  return std::string(kernels.Check(spec).message());
}

TEST(CheckSpecTest, OperandsAreThoseOfTheOperator) {
  KernelSpec spec{.op = "matmul", .name = "m", .attrs = {}, .inputs = {Whole({4, 6})}};
  spec.outputs = {Whole({4, 8})};
  EXPECT_THAT(Refusal(spec), HasSubstr("matmul 'm': "));
  spec.inputs.push_back(Whole({6, 8}));
  EXPECT_EQ(Refusal(spec), "");
  spec.outputs = {Whole({4, 9})};
  EXPECT_EQ(Refusal(spec),
            "matmul 'm': the outputs are (f32[4, 9]); of (f32[4, 6], f32[6, 8]) come (f32[4, 8])");
}

TEST(CheckSpecTest, AttributesHaveTheTypesOfTheSamples) {
  KernelSpec spec{.op = "transpose", .name = "t", .attrs = {}, .inputs = {Whole({4, 6})}};
  spec.outputs = {Whole({6, 4})};
  EXPECT_THAT(Refusal(spec), HasSubstr("attribute 'perm' is missing"));
  spec.attrs.Set("perm", 1.5);
  EXPECT_THAT(Refusal(spec), HasSubstr("the attribute 'perm=1.5' has another type"));
  spec.attrs.Set("perm", std::vector<int64_t>{1, 0});
  EXPECT_EQ(Refusal(spec), "");
}

TEST(CheckSpecTest, PartsFitTogether) {
  const Region rows{{0, 0}, {2, 6}};
  KernelSpec spec{.op = "matmul",
                  .name = "m",
                  .attrs = {},
                  .inputs = {Operand({4, 6}, rows), Whole({6, 8})},
                  .outputs = {Operand({4, 8}, {{0, 0}, {2, 8}})}};
  EXPECT_EQ(Refusal(spec), "");
  spec.outputs = {Operand({4, 8}, {{0, 0}, {3, 8}})};
  EXPECT_THAT(Refusal(spec), HasSubstr("no signature of the operator splits axis 0 of [4, 6] so"));
  // Both parts of the axis that is summed over, or none.
  spec.outputs = {Whole({4, 8})};
  spec.inputs = {Operand({4, 6}, {{0, 0}, {4, 3}}), Operand({6, 8}, {{0, 0}, {3, 8}})};
  EXPECT_EQ(Refusal(spec), "");
  spec.inputs[1] = Whole({6, 8});
  EXPECT_THAT(Refusal(spec), HasSubstr("no signature of the operator splits axis 1 of [4, 6] so"));
  spec.inputs[1] = Operand({6, 8}, {{4, 0}, {3, 8}});
  EXPECT_THAT(Refusal(spec), HasSubstr("is no part of a tensor [6, 8]"));
}

}  // namespace
}  // namespace braid
