// Where a step's time goes: a wrapper around every kernel that adds up its time, and a table.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "graph/op_registry.h"
#include "runtime/kernels/kernel.h"

namespace bench {

// Of one device thread: nothing is locked. It must outlive the kernels.
class OperatorTimes {
 public:
  // Measures every kernel that `kernels` makes from now on; `operators` know their flops.
  void Watch(const braid::OpRegistry& operators, braid::KernelRegistry& kernels);
  void Reset();  // forgets what was measured
  // Per operator and shape: calls, milliseconds, share and GFLOP/s of a step of `step_seconds`.
  void Print(int64_t steps, double step_seconds) const;

 private:
  struct Entry {
    int64_t calls = 0;
    double seconds = 0, flops = 0;  // flops of one call
  };
  class Measured;
  std::map<std::string, Entry> entries_;  // by operator and operands; nodes stay where they are
};

}  // namespace bench
