// Every operator that has a CUDA kernel, by its samples, with that kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_layout.h"
#include "api/conformance/operator_run.h"
#include "graph/op_registry.h"
#include "tests/conformance/print_coverage.h"
#include "tests/cuda/kernels_under_test.h"

namespace braid::conformance {
namespace {

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  const OpRegistry ops = BuiltinOps();
  for (const auto& [name, def] : ops.ops()) {
    if (KernelsUnderTest().Has(name)) names.push_back(name);
  }
  return names;
}

class CudaOperatorTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotHere(); !why.empty()) GTEST_SKIP() << why;
  }
  const OpDef& def() const { return *ops_.Find(GetParam()); }

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry cpu_ = CpuKernels();
  const KernelRegistry& cuda_ = KernelsUnderTest();
};

// What one device makes of the whole, as the CPU's kernels do.
TEST_P(CudaOperatorTest, EqualsTheCpu) {
  struct Precision {
    DType floating;
    double tolerance;
  };
  int compared = 0;
  for (const auto& [floating, tolerance] :
       {Precision{DType::kF64, 1e-12}, Precision{DType::kF32, 2e-5}, Precision{DType::kBF16, 2e-2},
        Precision{DType::kF16, 3e-3}}) {
    for (Sizes sizes : {Sizes::kAsGiven, Sizes::kPrime, Sizes::kTiny, Sizes::kEven}) {
      for (const OpCase& c : CasesOf(def(), floating, sizes)) {
        // A product that may be computed from narrower operands is, or is not.
        const double allowed =
            c.attrs.Has("compute") ? std::max(tolerance, ToleranceOf(DType::kBF16)) : tolerance;
        const std::vector<Array> inputs = DrawInputs(c);
        const auto expected = RunWhole(cpu_, c, inputs);
        if (!expected.ok()) continue;  // the CPU has no kernel for it either
        const auto got = RunWhole(cuda_, c, inputs);
        ASSERT_TRUE(got.ok()) << c.label << ": " << got.status();
        ASSERT_EQ(got->size(), expected->size());
        for (size_t i = 0; i < got->size(); ++i) {
          EXPECT_EQ(Compare((*got)[i], (*expected)[i], allowed, 1), "")
              << c.label << ", output " << i;
        }
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

TEST_P(CudaOperatorTest, IsConformant) {
  OperatorCoverage row;
  ExpectConformant(OperatorChecks(def(), cuda_, row));
}

INSTANTIATE_TEST_SUITE_P(Builtin, CudaOperatorTest, testing::ValuesIn(OperatorNames()),
                         [](const auto& info) { return info.param; });
// The list may be short while families are being written.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaOperatorTest);

}  // namespace
}  // namespace braid::conformance
