#include "api/conformance/operator_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conformance/operator_layout.h"
#include "graph/sbp.h"

namespace braid::conformance {
namespace {

constexpr size_t kMaxErrors = 5;

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

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-12;
    case DType::kF32:
      return 1e-5;
    case DType::kF16:
      return 2e-3;
    default:
      return 1.6e-2;  // of bf16
  }
}

std::vector<OpCase> OperatorChecks::Cases(DType floating, Sizes sizes) const {
  std::vector<OpCase> cases = CasesOf(def_, floating, sizes);
  if (is_tried_) std::erase_if(cases, [this](const OpCase& c) { return !is_tried_(c); });
  return cases;
}

void OperatorChecks::Check(const OpCase& c, const RunOptions& options, double tolerance) {
  std::string error = CheckAgainstWhole(kernels_, c, DrawInputs(c), options, tolerance);
  if (!error.empty()) Fail(std::move(error));
}

void OperatorChecks::Fail(std::string error) {
  if (errors_.size() == kMaxErrors) {
    ++more_errors_;
  } else {
    errors_.push_back(std::move(error));
  }
}

std::vector<std::string> OperatorChecks::errors() const {
  std::vector<std::string> errors = errors_;
  if (more_errors_ > 0) errors.push_back(absl::StrCat("and ", more_errors_, " more"));
  return errors;
}

void OperatorChecks::CheckSignatures(DType dtype) {
  const double tolerance = ToleranceOf(dtype);
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

void OperatorChecks::CheckProducts(DType dtype) {
  for (Sizes sizes : {Sizes::kAsGiven, Sizes::kTiny}) {
    for (const OpCase& c : Cases(dtype, sizes)) {
      for (const Hierarchy& hierarchy : {Hierarchy{2, 2}, Hierarchy{3, 2}}) {
        const auto legal = def_.LegalSignatures(c.context(), NumRanks(hierarchy));
        for (const SbpSignature& outer : legal) {
          for (const SbpSignature& inner : legal) {
            Check(c, {.layouts = ProductOf({outer, inner}), .hierarchy = hierarchy},
                  ToleranceOf(dtype));
            ++row_.products;
          }
        }
      }
    }
  }
}

void OperatorChecks::CheckMicroBatches(DType dtype) {
  // Updates act once a step, and what accumulates keeps its output from act to act.
  if (!def_.mutates().empty() || def_.name() == "accumulate") return;
  constexpr int64_t kActs = 2;
  std::vector<OpCase> cases = Cases(dtype, Sizes::kEven);
  for (OpCase& c : Cases(dtype, Sizes::kAsGiven)) cases.push_back(std::move(c));
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
                ToleranceOf(dtype));
          ++row_.micro_batch_splits;
        }
      }
    }
  }
}

void OperatorChecks::CompareWithWide(const OpCase& c, const OpCase& wide, DType dtype) {
  double tolerance = dtype == DType::kF64 ? 0 : ToleranceOf(dtype);
  if (c.attrs.Has("compute")) tolerance = std::max(tolerance, ToleranceOf(DType::kBF16));
  const std::vector<Array> inputs = DrawInputs(c);
  std::vector<Array> wide_inputs;
  for (size_t k = 0; k < inputs.size(); ++k) {
    wide_inputs.push_back(inputs[k].As(wide.inputs[k].dtype));
  }
  const auto actual = RunWhole(kernels_, c, inputs);
  const auto expected = RunWhole(kernels_, wide, wide_inputs);
  for (const auto& [run, of] : {std::pair(&actual, &c), {&expected, &wide}}) {
    if (!run->ok()) return Fail(absl::StrCat(of->label, ": ", run->status().ToString()));
  }
  // Random numbers of f64 have more bits than those of f32: they are other numbers.
  if (def_.random() && inputs.empty()) return;
  for (size_t k = 0; k < expected->size(); ++k) {
    const std::string difference = Compare((*actual)[k], (*expected)[k], tolerance);
    if (!difference.empty()) Fail(absl::StrCat(c.label, ", result ", k, ": ", difference));
  }
}

// Against f64 on the same, rounded, inputs. What multiplies in bf16 inside is no better than that.
void OperatorChecks::CheckDType(DType dtype) {
  const std::vector<OpCase> wide_cases = Cases(DType::kF64, Sizes::kAsGiven);
  const std::vector<OpCase> cases = Cases(dtype, Sizes::kAsGiven);
  const auto of_one_type = std::ranges::count(cases, false, &OpCase::has_wide_numbers);
  if (of_one_type != std::ssize(wide_cases)) {
    return Fail(absl::StrCat(of_one_type, " cases in ", std::string(ToString(dtype)), " and ",
                             wide_cases.size(), " in f64"));
  }
  auto wide = wide_cases.begin() - 1;
  for (const OpCase& c : cases) {
    if (!c.has_wide_numbers) ++wide;
    CompareWithWide(c, *wide, dtype);
  }
  absl::StrAppend(&row_.dtypes, row_.dtypes.empty() ? "" : " ", std::string(ToString(dtype)));
}

void OperatorChecks::CheckAll() {
  for (const DType dtype : {DType::kF64, DType::kF32}) CheckSignatures(dtype);
  CheckProducts(DType::kF64);
  CheckMicroBatches(DType::kF64);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) CheckDType(dtype);
  if (row_.signatures == 0) Fail("no signature was tried");
}

}  // namespace braid::conformance
