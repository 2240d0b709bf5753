// Every operator in the list, by its samples: gradients against differences, every signature on
// one to four devices, on two-dimensional hierarchies and over micro-batches against the whole,
// every element type against f64. The coverage is printed at the end; an operator that nothing was
// tried on fails.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_gradient.h"
#include "api/conformance/operator_run.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "graph/sbp.h"
#include "tests/conformance/print_coverage.h"

namespace braid::conformance {
namespace {

class OperatorTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    PrintCoverage(*rows_);
    rows_->clear();
  }

  const OpDef& def() const { return *ops_.Find(GetParam()); }
  OperatorCoverage& row() { return (*rows_)[GetParam()]; }

  void CheckGradients();

  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();

 private:
  // The table of this program's run.
  static std::map<std::string, OperatorCoverage>* const rows_;
};

std::map<std::string, OperatorCoverage>* const OperatorTest::rows_ =
    new std::map<std::string, OperatorCoverage>;

void OperatorTest::CheckGradients() {
  if (!def().has_gradient()) {
    row().gradient = "none: the op says NoGradient";
    return;
  }
  int derivatives = 0;
  bool is_excepted = false;
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kPrime}) {
    for (const OpCase& c : CasesOf(def(), DType::kF64, sizes)) {
      is_excepted = is_excepted || !c.check_gradient;
      if (!c.check_gradient) continue;
      const GradientCheck check = CheckGradient(ops_, kernels_, c);
      EXPECT_EQ(check.error, "");
      derivatives += check.derivatives;
    }
  }
  row().gradient =
      is_excepted ? "none: the sample says that it is no derivative" : absl::StrCat(derivatives);
  EXPECT_TRUE(is_excepted || derivatives > 0) << "no sample has a floating input";
}

TEST_P(OperatorTest, IsConformant) {
  if (def().external()) {
    row().gradient = "external: the runtime's tests have it";
    return;
  }
  row().samples = static_cast<int>(def().samples().size());
  CheckGradients();
  ExpectConformant(OperatorChecks(def(), kernels_, row()));
}

// What the suite is there to find, it finds.
TEST(SuiteTest, FindsWrongGradientsAndSignatures) {
  const OpRegistry ops = BuiltinOps();
  const KernelRegistry kernels = CpuKernels();
  // Its gradient is not its derivative, on purpose.
  const OpCase stop = CasesOf(*ops.Find("stop_gradient"), DType::kF64, Sizes::kAsGiven)[0];
  EXPECT_NE(CheckGradient(ops, kernels, stop).error, "");

  const auto difference = [&](const char* op, const SbpSignature& signature) {
    const OpCase c = CasesOf(*ops.Find(op), DType::kF64, Sizes::kAsGiven)[0];
    const RunOptions options = {.layouts = ProductOf({signature}), .hierarchy = {2}};
    return CheckAgainstWhole(kernels, c, DrawInputs(c), options, 1e-12);
  };
  EXPECT_NE(difference("relu", {{sbp::P}, {sbp::P}}), "");           // it is not linear
  EXPECT_NE(difference("add_scalar", {{sbp::P}, {sbp::P}}), "");     // nor is this
  EXPECT_NE(difference("softmax", {{sbp::S(1)}, {sbp::S(1)}}), "");  // rows must be whole
  EXPECT_NE(difference("reduce_sum", {{sbp::S(0)}, {sbp::B}}), "");  // copies differ
  EXPECT_NE(difference("reduce_max", {{sbp::S(0)}, {sbp::P}}), "");  // not a sum
}

// The gradients of the cross entropies are right in the composite of which they are a part.
TEST(CompositeTest, CrossEntropyGradientsAreDerivatives) {
  const OpRegistry ops = BuiltinOps();
  const KernelRegistry kernels = CpuKernels();
  const TensorType logits = {DType::kF64, {5, 6}};
  const OpCase sparse = {.label = "sparse", .inputs = {logits, {DType::kI32, {5}}}, .int_high = 6};
  GradientCheck check = CheckGradient(ops, kernels, sparse, [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{SoftmaxCrossEntropy(in[0], in[1])};
  });
  EXPECT_EQ(check.error, "");
  EXPECT_EQ(check.derivatives, 30);
  const OpCase dense = {.label = "dense", .inputs = {logits, logits}};
  check = CheckGradient(ops, kernels, dense, [](const std::vector<Tensor>& in) {
    // Labels that sum to 1, as the function asks for.
    return std::vector<Tensor>{SoftmaxCrossEntropy(in[0], Softmax(in[1]))};
  });
  EXPECT_EQ(check.error, "");
  EXPECT_EQ(check.derivatives, 60);
}

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  const OpRegistry ops = BuiltinOps();
  for (const auto& [name, def] : ops.ops()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Builtin, OperatorTest, testing::ValuesIn(OperatorNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::conformance
