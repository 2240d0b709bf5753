#include "tests/conformance/ops_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "graph/sbp.h"
#include "tests/conformance/ops_layout.h"

namespace braid::conformance {
namespace {

constexpr int kMaxErrors = 5;

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

}  // namespace

void PrintCoverage(const std::map<std::string, Coverage>& rows) {
  std::printf("%-34s %7s %10s %7s %8s %5s  %-15s %s\n", "operator", "samples", "signatures", "1-d",
              "2-d", "time", "dtypes", "derivatives");
  for (const auto& [name, row] : rows) {
    std::printf("%-34s %7d %10d %7d %8d %5d  %-15s %s\n", name.c_str(), row.samples, row.signatures,
                row.layouts, row.products, row.micro_batch_splits, row.dtypes.c_str(),
                row.gradient.c_str());
  }
}

std::vector<OpCase> OperatorChecks::Cases(DType floating, Sizes sizes) const {
  std::vector<OpCase> cases = CasesOf(def_, floating, sizes);
  if (is_tried_) std::erase_if(cases, [this](const OpCase& c) { return !is_tried_(c); });
  return cases;
}

void OperatorChecks::Check(const OpCase& c, const RunOptions& options, double tolerance) {
  const std::string error = CheckAgainstWhole(kernels_, c, DrawInputs(c), options, tolerance);
  if (!error.empty() && ++errors_ <= kMaxErrors) ADD_FAILURE() << error;
}

void OperatorChecks::CheckSignatures(DType dtype, double tolerance) {
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kPrime, Sizes::kTiny}) {
    for (const OpCase& c : Cases(dtype, sizes)) {
      for (int64_t parts = 1; parts <= 4; ++parts) {
        const std::vector<SbpSignature> legal = def_.LegalSignatures(c.context(), parts);
        if (dtype == DType::kF64 && sizes == Sizes::kAsGiven && parts == 2) {
          row_.signatures += static_cast<int>(legal.size());
        }
        for (const SbpSignature& signature : legal) {
          Check(c, {.layouts = ProductOf({signature}), .hierarchy = {parts}}, tolerance);
          ++row_.layouts;
        }
      }
    }
  }
}

void OperatorChecks::CheckProducts() {
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kTiny}) {
    for (const OpCase& c : Cases(DType::kF64, sizes)) {
      for (const Hierarchy& hierarchy : {Hierarchy{2, 2}, Hierarchy{3, 2}}) {
        const auto legal = def_.LegalSignatures(c.context(), NumRanks(hierarchy));
        for (const SbpSignature& outer : legal) {
          for (const SbpSignature& inner : legal) {
            Check(c, {.layouts = ProductOf({outer, inner}), .hierarchy = hierarchy}, 1e-12);
            ++row_.products;
          }
        }
      }
    }
  }
}

void OperatorChecks::CheckMicroBatches() {
  // Updates act once a step, and what accumulates keeps its output from act to act.
  if (!def_.mutates().empty() || def_.name() == "accumulate") return;
  constexpr int64_t kActs = 2;
  std::vector<OpCase> cases = Cases(DType::kF64, Sizes::kEven);
  for (OpCase& c : Cases(DType::kF64, Sizes::kAsGiven)) cases.push_back(std::move(c));
  for (const OpCase& c : cases) {
    if (def_.IsPerMicroBatch(c.context())) continue;  // it has other values then
    for (int64_t parts = 1; parts <= 3; ++parts) {
      const auto legal = def_.LegalSignatures(c.context(), kActs * parts);
      for (const SbpSignature& micro_batches : legal) {
        if (!Divides(kActs, micro_batches, c)) continue;
        for (const SbpSignature& devices : legal) {
          Check(c,
                {.layouts = ProductOf({micro_batches, devices}),
                 .hierarchy = {kActs, parts},
                 .outermost_is_micro_batches = true},
                1e-12);
          ++row_.micro_batch_splits;
        }
      }
    }
  }
}

// Against f64 on the same, rounded, inputs. What multiplies in bf16 inside is no better than that.
void OperatorChecks::CheckDType(DType dtype, double type_tolerance) {
  const std::vector<OpCase> wide_cases = Cases(DType::kF64, Sizes::kAsGiven);
  const std::vector<OpCase> cases = Cases(dtype, Sizes::kAsGiven);
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
    ASSERT_TRUE(actual.ok()) << cases[i].label << ": " << actual.status();
    const auto expected = RunWhole(kernels_, wide_cases[i], wide_inputs);
    ASSERT_TRUE(expected.ok()) << wide_cases[i].label << ": " << expected.status();
    // Random numbers of f64 have more bits than those of f32: they are other numbers.
    if (def_.random() && inputs.empty()) continue;
    for (size_t k = 0; k < expected->size(); ++k) {
      EXPECT_EQ(Compare((*actual)[k], (*expected)[k], tolerance), "")
          << cases[i].label << ", result " << k;
    }
  }
  absl::StrAppend(&row_.dtypes, row_.dtypes.empty() ? "" : " ", std::string(ToString(dtype)));
}

void OperatorChecks::CheckAll() {
  CheckSignatures(DType::kF64, 1e-12);
  CheckSignatures(DType::kF32, 1e-5);
  CheckProducts();
  CheckMicroBatches();
  CheckDType(DType::kF64, 0);
  CheckDType(DType::kF32, 1e-5);
  CheckDType(DType::kBF16, kNarrowTolerance);
  CheckDType(DType::kF16, 2e-3);
  EXPECT_GT(row_.signatures, 0) << "no signature was tried";
  EXPECT_LE(errors_, kMaxErrors) << "errors in all";
}

}  // namespace braid::conformance
