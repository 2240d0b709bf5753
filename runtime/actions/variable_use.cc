#include "runtime/actions/variable_use.h"

#include <algorithm>
#include <variant>

namespace braid {
namespace {

bool IsVariable(const plan::Operand& operand) {
  return operand.source == plan::Operand::Source::kVariable;
}

}  // namespace

VariableUse::VariableUse(const plan::NodePlan& plan, const Devices& devices) {
  for (const plan::Task& task : plan.tasks) {
    if (const auto* compute = std::get_if<plan::Compute>(&task.work)) {
      const KernelRegistry& kernels = devices[task.device]->kernels();
      for (const plan::Kernel& kernel : compute->kernels) {
        for (size_t i = 0; i < kernel.inputs.size(); ++i) {
          if (kernels.MayWrite(kernel.call->op, static_cast<int>(i))) {
            AddWritten(task, kernel.inputs[i]);
          }
        }
        for (const plan::Operand& output : kernel.outputs) AddWritten(task, output);
      }
    } else if (const auto* copy = std::get_if<plan::Copy>(&task.work)) {
      AddWritten(task, copy->destination);
    } else if (const auto* staging = std::get_if<plan::Staging>(&task.work)) {
      for (const plan::Staging::Part& part : staging->parts) AddWritten(task, part.to);
    } else if (const auto* collective = std::get_if<plan::Collective>(&task.work)) {
      AddWritten(task, collective->output);
    }
  }
}

void VariableUse::AddWritten(const plan::Task& task, const plan::Operand& operand) {
  if (!IsVariable(operand)) return;
  writes_ = true;
  // An asynchronous server's acts come whenever a worker's gradients do.
  if (task.acts_per_step > 1 || task.lanes > 0) {
    written_within_steps_.insert({operand.index, operand.variable});
  }
}

uint64_t VariableUse::SteadyInputs(const plan::Kernel& kernel,
                                   const KernelRegistry& kernels) const {
  uint64_t steady = 0;
  const size_t most = std::min<size_t>(kernel.inputs.size(), 64);
  for (size_t i = 0; i < most; ++i) {
    const plan::Operand& operand = kernel.inputs[i];
    if (operand.source == plan::Operand::Source::kKept) steady |= uint64_t{1} << i;
    if (!IsVariable(operand) || kernels.MayWrite(kernel.call->op, static_cast<int>(i))) continue;
    if (written_within_steps_.contains({operand.index, operand.variable})) continue;
    steady |= uint64_t{1} << i;
  }
  return steady;
}

}  // namespace braid
