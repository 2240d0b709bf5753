// What is tried of an operator: every signature on one to four devices, on two-dimensional
// hierarchies and over micro-batches against the whole, every element type against f64.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "api/conformance/operator_case.h"
#include "api/conformance/operator_run.h"
#include "graph/op_def.h"
#include "runtime/kernels/kernel.h"

namespace braid::conformance {

struct OperatorCoverage {
  int samples = 0;
  int signatures = 0;          // different ones, of all samples
  int layouts = 0;             // 1-d runs compared with the whole
  int products = 0;            // on two-dimensional hierarchies
  int micro_batch_splits = 0;  // over micro-batches
  std::string dtypes, gradient;
};

// Of results that are computed in the type, relative to the largest number.
double ToleranceOf(DType dtype);

class OperatorChecks {
 public:
  // Of the cases of the definition's samples, or those of them that `is_tried` names.
  OperatorChecks(const OpDef& def, const KernelRegistry& kernels, OperatorCoverage& row,
                 std::function<bool(const OpCase&)> is_tried = nullptr)
      : def_(def), kernels_(kernels), row_(row), is_tried_(std::move(is_tried)) {}

  void CheckSignatures(DType dtype);
  void CheckProducts(DType dtype);
  void CheckMicroBatches(DType dtype);
  void CheckDType(DType dtype);
  // All of these, in all types.
  void CheckAll();

  // What differs, the first few times, with its case; and how many more there were.
  std::vector<std::string> errors() const;

  std::vector<OpCase> Cases(DType floating, Sizes sizes) const;

 private:
  // Compares with the whole.
  void Check(const OpCase& c, const RunOptions& options, double tolerance);
  void CompareWithWide(const OpCase& c, const OpCase& wide, DType dtype);
  void Fail(std::string error);

  const OpDef& def_;
  const KernelRegistry& kernels_;
  OperatorCoverage& row_;
  const std::function<bool(const OpCase&)> is_tried_;  // null: all
  std::vector<std::string> errors_;
  int more_errors_ = 0;
};

}  // namespace braid::conformance
