// What the suites of operators try of each: every signature on one to four devices, on
// two-dimensional hierarchies and over micro-batches against the whole, every element type against
// f64. They are failures of the test that runs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_def.h"
#include "runtime/kernels/kernel.h"
#include "tests/conformance/ops_case.h"
#include "tests/conformance/ops_run.h"

namespace braid::conformance {

struct Coverage {
  int samples = 0;
  int signatures = 0;          // different ones, of all samples
  int layouts = 0;             // 1-d runs compared with the whole
  int products = 0;            // on two-dimensional hierarchies
  int micro_batch_splits = 0;  // over micro-batches
  std::string dtypes, gradient;
};

// A line per operator, in the operators' order.
void PrintCoverage(const std::map<std::string, Coverage>& rows);

constexpr double kNarrowTolerance = 1.6e-2;  // of bf16

class OperatorChecks {
 public:
  // Of the cases of the definition's samples, or those of them that `is_tried` names.
  OperatorChecks(const OpDef& def, const KernelRegistry& kernels, Coverage& row,
                 std::function<bool(const OpCase&)> is_tried = nullptr)
      : def_(def), kernels_(kernels), row_(row), is_tried_(std::move(is_tried)) {}

  void CheckSignatures(DType dtype, double tolerance);
  void CheckProducts();
  void CheckMicroBatches();
  void CheckDType(DType dtype, double tolerance);
  // All of these.
  void CheckAll();

  std::vector<OpCase> Cases(DType floating, Sizes sizes) const;

 private:
  // Compares with the whole. What differs is shown, the first few times.
  void Check(const OpCase& c, const RunOptions& options, double tolerance);

  const OpDef& def_;
  const KernelRegistry& kernels_;
  Coverage& row_;
  const std::function<bool(const OpCase&)> is_tried_;  // null: all
  int errors_ = 0;
};

}  // namespace braid::conformance
