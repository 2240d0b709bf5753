// Every operator in the list, by its samples: gradients against differences, every signature on
// one to four devices, on two-dimensional hierarchies and over micro-batches against the whole,
// every element type against f64. The coverage is printed at the end; an operator that nothing was
// tried on fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/functional.h"
#include "graph/op_registry.h"
#include "graph/sbp.h"
#include "tests/conformance/ops_case.h"
#include "tests/conformance/ops_gradient.h"
#include "tests/conformance/ops_run.h"

namespace braid::conformance {
namespace {

struct Coverage {
  int samples = 0;
  int signatures = 0;   // different ones, of all samples
  int layouts = 0;      // 1-d runs compared with the whole
  int products = 0;     // on two-dimensional hierarchies
  int time_splits = 0;  // over micro-batches
  std::string dtypes, gradient;
};

class OperatorTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() {
    std::printf("%-34s %7s %10s %7s %8s %5s  %-15s %s\n", "operator", "samples", "signatures",
                "1-d", "2-d", "time", "dtypes", "derivatives");
    for (const auto& [name, row] : *rows_) {
      std::printf("%-34s %7d %10d %7d %8d %5d  %-15s %s\n", name.c_str(), row.samples,
                  row.signatures, row.layouts, row.products, row.time_splits, row.dtypes.c_str(),
                  row.gradient.c_str());
    }
    rows_->clear();
  }

  const OpDef& def() const { return *ops_.Find(GetParam()); }
  Coverage& row() { return (*rows_)[GetParam()]; }

  // Compares with the whole. What differs is shown, the first few times.
  void Check(const OpCase& c, const RunOptions& options, double tolerance) {
    const std::string error = CheckAgainstWhole(kernels_, c, DrawInputs(c), options, tolerance);
    if (!error.empty() && ++errors_ <= kMaxErrors) ADD_FAILURE() << error;
  }

  void CheckGradients();
  void CheckSignatures(DType dtype, double tolerance);
  void CheckProducts();
  void CheckMicroBatches();
  void CheckDType(DType dtype, double tolerance);

  static constexpr int kMaxErrors = 5;
  const OpRegistry ops_ = BuiltinOps();
  const KernelRegistry kernels_ = CpuKernels();
  int errors_ = 0;

 private:
  // The table of this program's run, in the operators' order.
  static std::map<std::string, Coverage>* const rows_;
};

std::map<std::string, Coverage>* const OperatorTest::rows_ = new std::map<std::string, Coverage>;

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

void OperatorTest::CheckSignatures(DType dtype, double tolerance) {
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kPrime, Sizes::kTiny}) {
    for (const OpCase& c : CasesOf(def(), dtype, sizes)) {
      for (int64_t parts = 1; parts <= 4; ++parts) {
        const std::vector<SbpSignature> legal = def().LegalSignatures(c.context(), parts);
        if (dtype == DType::kF64 && sizes == Sizes::kAsGiven && parts == 2) {
          row().signatures += static_cast<int>(legal.size());
        }
        for (const SbpSignature& signature : legal) {
          Check(c, {.layouts = ProductOf({signature}), .hierarchy = {parts}}, tolerance);
          ++row().layouts;
        }
      }
    }
  }
}

void OperatorTest::CheckProducts() {
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kTiny}) {
    for (const OpCase& c : CasesOf(def(), DType::kF64, sizes)) {
      for (const Hierarchy& hierarchy : {Hierarchy{2, 2}, Hierarchy{3, 2}}) {
        const auto legal = def().LegalSignatures(c.context(), NumRanks(hierarchy));
        for (const SbpSignature& outer : legal) {
          for (const SbpSignature& inner : legal) {
            Check(c, {.layouts = ProductOf({outer, inner}), .hierarchy = hierarchy}, 1e-12);
            ++row().products;
          }
        }
      }
    }
  }
}

// Whether `parts` divides every axis that the signature splits: what micro-batches need.
bool Divides(int64_t parts, const SbpSignature& signature, const OpCase& c) {
  const auto fits = [parts](const std::vector<Sbp>& sbps, const std::vector<TensorType>& types) {
    for (size_t i = 0; i < sbps.size(); ++i) {
      if (sbps[i].is_split() && types[i].shape[sbps[i].axis] % parts != 0) return false;
    }
    return true;
  };
  return fits(signature.inputs, c.inputs) && fits(signature.outputs, c.outputs);
}

void OperatorTest::CheckMicroBatches() {
  // Updates act once a step, and what accumulates keeps its output from act to act.
  if (!def().mutates().empty() || GetParam() == "accumulate") return;
  constexpr int64_t kActs = 2;
  std::vector<OpCase> cases = CasesOf(def(), DType::kF64, Sizes::kEven);
  for (OpCase& c : CasesOf(def(), DType::kF64, Sizes::kAsGiven)) cases.push_back(std::move(c));
  for (const OpCase& c : cases) {
    if (def().IsPerMicroBatch(c.context())) continue;  // it has other values then
    for (int64_t parts = 1; parts <= 3; ++parts) {
      const auto legal = def().LegalSignatures(c.context(), kActs * parts);
      for (const SbpSignature& time : legal) {
        if (!Divides(kActs, time, c)) continue;
        for (const SbpSignature& devices : legal) {
          Check(c,
                {.layouts = ProductOf({time, devices}),
                 .hierarchy = {kActs, parts},
                 .outermost_is_time = true},
                1e-12);
          ++row().time_splits;
        }
      }
    }
  }
}

constexpr double kNarrowTolerance = 1.6e-2;  // of bf16

// Against f64 on the same, rounded, inputs. What multiplies in bf16 inside is no better than that.
void OperatorTest::CheckDType(DType dtype, double type_tolerance) {
  const std::vector<OpCase> wide_cases = CasesOf(def(), DType::kF64, Sizes::kAsGiven);
  const std::vector<OpCase> cases = CasesOf(def(), dtype, Sizes::kAsGiven);
  ASSERT_EQ(cases.size(), wide_cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const double tolerance =
        cases[i].attrs.Has("compute") ? std::max(type_tolerance, kNarrowTolerance) : type_tolerance;
    const std::vector<Array> inputs = DrawInputs(cases[i]);
    std::vector<Array> wide_inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      wide_inputs.push_back(inputs[k].As(wide_cases[i].inputs[k].dtype));
    }
    const auto actual = RunWhole(kernels_, cases[i], inputs);
    const bool is_needed = dtype == DType::kF32 || dtype == DType::kF64;
    if (absl::IsUnimplemented(actual.status()) && !is_needed) return;
    ASSERT_TRUE(actual.ok()) << cases[i].label << ": " << actual.status();
    const auto expected = RunWhole(kernels_, wide_cases[i], wide_inputs);
    ASSERT_TRUE(expected.ok()) << wide_cases[i].label << ": " << expected.status();
    // Random numbers of f64 have more bits than those of f32: they are other numbers.
    if (def().random() && inputs.empty()) continue;
    for (size_t k = 0; k < expected->size(); ++k) {
      EXPECT_EQ(Compare((*actual)[k], (*expected)[k], tolerance), "")
          << cases[i].label << ", result " << k;
    }
  }
  absl::StrAppend(&row().dtypes, row().dtypes.empty() ? "" : " ", std::string(ToString(dtype)));
}

TEST_P(OperatorTest, IsConformant) {
  if (def().external()) {
    row().gradient = "external: the runtime's tests have it";
    return;
  }
  row().samples = static_cast<int>(def().samples().size());
  CheckGradients();
  CheckSignatures(DType::kF64, 1e-12);
  CheckSignatures(DType::kF32, 1e-5);
  CheckProducts();
  CheckMicroBatches();
  CheckDType(DType::kF64, 0);
  CheckDType(DType::kF32, 1e-5);
  CheckDType(DType::kBF16, kNarrowTolerance);
  CheckDType(DType::kF16, 2e-3);
  EXPECT_GT(row().signatures, 0) << "no signature was tried";
  EXPECT_LE(errors_, kMaxErrors) << "errors in all";
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
  EXPECT_NE(difference("shift", {{sbp::P}, {sbp::P}}), "");          // nor is this
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
