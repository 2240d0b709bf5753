#include <braid/testing.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_checks.h"
#include "api/conformance/operator_gradient.h"
#include "runtime/base/nearest_names.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using conformance::OpCase;
using conformance::Sizes;

// What differs between derivatives and differences.
std::vector<std::string> GradientErrors(const OpDef& def, const OpRegistry& operators,
                                        const KernelRegistry& kernels, DType dtype) {
  std::vector<std::string> errors;
  if (!def.has_gradient()) return errors;
  for (const Sizes sizes : {Sizes::kAsGiven, Sizes::kPrime}) {
    for (const OpCase& c : CasesOf(def, dtype, sizes)) {
      if (!c.check_gradient) continue;
      std::string error = CheckGradient(operators, kernels, c).error;
      if (!error.empty()) errors.push_back(std::move(error));
    }
  }
  return errors;
}

}  // namespace

absl::Status TestOperator(
    const std::string& op,
    const std::function<absl::Status(OpRegistry& operators, KernelRegistry& kernels)>& extend,
    const OperatorTestOptions& options) {
  if (options.dtypes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TestOperator of '", op, "': .dtypes is empty; at least one was expected"));
  }
  OpRegistry operators = BuiltinOps();
  KernelRegistry kernels = CpuKernels();
  BRAID_RETURN_IF_ERROR(extend(operators, kernels));
  const OpDef* const def = operators.Find(op);
  if (def == nullptr) {
    std::vector<std::string> names;
    for (const auto& [name, other] : operators.ops()) names.push_back(name);
    return absl::NotFoundError(
        absl::StrCat("TestOperator: no operator '", op,
                     "' is registered; the nearest: ", NearestNames(op, names)));
  }
  const std::vector<DType>& dtypes = options.dtypes;
  const DType first = dtypes[0];
  conformance::OperatorCoverage coverage;
  conformance::OperatorChecks checks(*def, kernels, coverage);
  checks.CheckSignatures(first);
  checks.CheckProducts(first);
  checks.CheckMicroBatches(first);
  if (std::count(dtypes.begin(), dtypes.end(), DType::kF64) > 0) {
    for (const DType dtype : dtypes) checks.CheckDType(dtype);
  } else {
    for (const DType dtype : dtypes) {
      if (dtype != first) checks.CheckSignatures(dtype);
    }
  }
  std::vector<std::string> errors = GradientErrors(*def, operators, kernels, first);
  for (std::string& error : checks.errors()) errors.push_back(std::move(error));
  if (coverage.layouts == 0) errors.push_back("no layout of its samples was tried");
  if (errors.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("operator '", op, "' is not what it says: ", absl::StrJoin(errors, "; ")));
}

}  // namespace braid
