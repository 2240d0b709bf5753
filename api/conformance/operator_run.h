// Runs a case's kernel as the devices of a hierarchy would, one after another, and compares what
// they make with what one device makes of the whole.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/conformance/operator_case.h"
#include "api/conformance/operator_layout.h"
#include "runtime/kernels/kernel.h"

namespace braid::conformance {

// One NdSbp per operand.
struct Layouts {
  std::vector<NdSbp> inputs, outputs;
  std::string ToString() const;
};
Layouts ProductOf(const std::vector<SbpSignature>& per_dimension);
Layouts AllBroadcast(const OpCase& c);

struct RunOptions {
  Layouts layouts;
  Hierarchy hierarchy = {1};
  // The outermost dimension is the micro-batches: its coordinates are acts of one kernel, not
  // devices.
  bool outermost_is_micro_batches = false;
};

// What a device's operands hold after the run.
struct Operands {
  std::vector<Array> inputs, outputs;
};
// Per rank. An error if a kernel fails, writes an input that it must not, or makes something else
// where it may work in place.
absl::StatusOr<std::vector<Operands>> RunRanks(const KernelRegistry& kernels, const OpCase& c,
                                               const std::vector<Array>& inputs,
                                               const RunOptions& options);

// The numbers of all outputs, then those of all mutated inputs, of one device.
absl::StatusOr<std::vector<std::vector<double>>> RunWhole(const KernelRegistry& kernels,
                                                          const OpCase& c,
                                                          const std::vector<Array>& inputs);

// "" if the joined results are those of the whole, else what differs.
std::string CheckAgainstWhole(const KernelRegistry& kernels, const OpCase& c,
                              const std::vector<Array>& inputs, const RunOptions& options,
                              double tolerance);

}  // namespace braid::conformance
