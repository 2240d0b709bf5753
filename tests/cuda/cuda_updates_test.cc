// Updates of many variables that are launched together: the bits of each by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/kernel.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid {
namespace {

constexpr int kVariables = 120;  // more than one launch takes

// A variable with what an update of it reads and writes.
struct Variable {
  std::vector<float> operands[4];  // itself, its gradient, two states
  std::unique_ptr<Kernel> kernel;
  int64_t first = 0;  // elements by which the operands begin late
  bool is_momentum = false;
};

class CudaUpdatesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }

  // Of all sizes, also none, and of three kinds of which every third follows another.
  std::vector<Variable> MakeVariables() const {
    std::vector<Variable> variables;
    for (int i = 0; i < kVariables; ++i) {
      Variable variable;
      const int64_t elements = i % 10 == 3 ? 0 : (i * 37 % 11) * 173 + i % 7 + (i == 50 ? 9000 : 0);
      variable.first = i % 5 == 4 ? 1 : 0;
      variable.is_momentum = i % 3 == 2;
      for (int k = 0; k < 4; ++k) {
        for (int64_t e = 0; e < variable.first + elements; ++e) {
          const auto x = static_cast<float>(std::sin(i + 3.0 * k + 0.7 * static_cast<double>(e)));
          variable.operands[k].push_back(k == 3 ? x * x : x);
        }
      }
      const OperandSpec operand = Operand(DType::kF32, {elements});
      const OperandSpec rate = Operand(DType::kF32, {}), step = Operand(DType::kI64, {});
      KernelSpec spec = {.op = variable.is_momentum ? "momentum_update" : "adam_update",
                         .name = "update " + std::to_string(i)};
      if (variable.is_momentum) {
        spec.attrs = {{"weight_decay", 0.01}, {"momentum", 0.9}, {"nesterov", false}};
        spec.inputs = {operand, operand, operand, rate};
      } else {
        spec.attrs = {{"beta1", 0.9},      {"beta2", 0.999}, {"epsilon", 1e-8},
                      {"decoupled", true}, {"lazy", false},  {"weight_decay", i % 3 * 0.1}};
        spec.inputs = {operand, operand, operand, operand, rate, step};
      }
      auto kernel = KernelsUnderTest().Create(spec);
      EXPECT_TRUE(kernel.ok()) << kernel.status();
      variable.kernel = *std::move(kernel);
      variables.push_back(std::move(variable));
    }
    return variables;
  }

  // The addresses of its operands.
  std::vector<void*> AddressesOf(Variable& variable) {
    std::vector<void*> addresses;
    for (int k = 0; k < (variable.is_momentum ? 3 : 4); ++k) {
      addresses.push_back(variable.operands[k].data() + variable.first);
    }
    addresses.push_back(&rate_);
    if (!variable.is_momentum) addresses.push_back(&step_);
    return addresses;
  }

  static OperandSpec Operand(DType dtype, const Shape& shape) {
    return {.dtype = dtype, .logical = shape, .region = Region::Whole(shape)};
  }

  std::vector<Variable> variables_;
  float rate_ = 0.01f;
  int64_t step_ = 6;
};

TEST_F(CudaUpdatesTest, TogetherTheyHaveTheBitsOfEach) {
  std::vector<std::vector<Variable>> results;
  for (const bool together : {false, true}) {
    variables_ = MakeVariables();
    std::vector<std::vector<void*>> addresses;
    std::vector<Kernel*> kernels;
    std::vector<KernelRun> runs;
    for (Variable& variable : variables_) {
      addresses.push_back(AddressesOf(variable));
      kernels.push_back(variable.kernel.get());
      runs.push_back({.inputs = addresses.back().data()});
    }
    if (together) {
      const absl::Status status = kernels[0]->RunTogether(kernels, runs);
      ASSERT_TRUE(status.ok()) << status;
    }
    for (size_t i = 0; i < kernels.size() && !together; ++i) {
      const absl::Status status = kernels[i]->Run(runs[i]);
      ASSERT_TRUE(status.ok()) << status;
    }
    results.push_back(std::move(variables_));
  }
  const std::vector<Variable> before = MakeVariables();
  for (int i = 0; i < kVariables; ++i) {
    const Variable &each = results[0][i], &all = results[1][i];
    for (int k = 0; k < 4; ++k) EXPECT_EQ(each.operands[k], all.operands[k]) << "variable " << i;
    // All was updated, but for the element before.
    for (size_t e = 0; e < each.operands[0].size(); ++e) {
      const bool is_before = e < static_cast<size_t>(each.first);
      ASSERT_EQ(all.operands[0][e] == before[i].operands[0][e], is_before)
          << "variable " << i << ", element " << e;
    }
  }
}

}  // namespace
}  // namespace braid
