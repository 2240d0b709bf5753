// What the suites of operators show.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "api/conformance/operator_checks.h"

namespace braid::conformance {

// A line per operator, in the operators' order.
inline void PrintCoverage(const std::map<std::string, OperatorCoverage>& rows) {
  std::printf("%-34s %7s %10s %7s %8s %5s  %-15s %s\n", "operator", "samples", "signatures", "1-d",
              "2-d", "time", "dtypes", "derivatives");
  for (const auto& [name, row] : rows) {
    std::printf("%-34s %7d %10d %7d %8d %5d  %-15s %s\n", name.c_str(), row.samples, row.signatures,
                row.layouts, row.products, row.micro_batch_splits, row.dtypes.c_str(),
                row.gradient.c_str());
  }
}

// All checks; what they find are failures of the test that runs.
inline void ExpectConformant(OperatorChecks checks) {
  checks.CheckAll();
  for (const std::string& error : checks.errors()) ADD_FAILURE() << error;
}

}  // namespace braid::conformance
