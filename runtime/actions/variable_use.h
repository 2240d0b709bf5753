// What a job's tasks on one node do with variables: kernels keep what they make of a variable
// alone, packed weights for instance, as long as nobody writes to it.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/plan/node_plan.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernel.h"

namespace braid {

class VariableUse {
 public:
  VariableUse() = default;
  // The plan outlives it.
  VariableUse(const plan::NodePlan& plan, const Devices& devices);

  // Whether any variable is written.
  bool writes() const { return writes_; }
  // Bit i: input i of the kernel is a variable that this job writes at the end of a step at most,
  // or what the job keeps.
  uint64_t SteadyInputs(const plan::Kernel& kernel, const KernelRegistry& kernels) const;

 private:
  using Name = std::pair<uint32_t, std::string_view>;  // device, variable

  void AddWritten(const plan::Task& task, const plan::Operand& operand);

  bool writes_ = false;
  std::set<Name> written_within_steps_;
};

}  // namespace braid
