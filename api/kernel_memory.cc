#include "api/kernel_memory.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/plan/node_plan.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan_read.h"

namespace braid {
namespace {

// All that makes a difference to how much memory a kernel needs; names and places make none.
std::string LikenessOf(const plan::Kernel& kernel) {
  std::string text = absl::StrCat(kernel.call->op, " ", kernel.call->attrs.ToString());
  if (kernel.contributes) absl::StrAppend(&text, " contributes");
  for (const auto* operands : {&kernel.inputs, &kernel.outputs}) {
    absl::StrAppend(&text, ";");
    for (const plan::Operand& operand : *operands) {
      absl::StrAppend(&text, " ", operand.shard.layout->ToString(), " ",
                      operand.shard.region.size.ToString());
    }
  }
  return text;
}

}  // namespace

KernelMemory KernelMemoryPlanner::Of(const plan::Task& task) {
  KernelMemory memory;
  for (const plan::Kernel& kernel : std::get<plan::Compute>(task.work).kernels) {
    memory.Add(Of(kernel));
  }
  return memory;
}

KernelMemory KernelMemoryPlanner::Of(const plan::Kernel& kernel) {
  if (!kernels_->Has(kernel.call->op)) return {};
  const auto [known, is_first] = of_kernel_.try_emplace(LikenessOf(kernel));
  if (!is_first) return known->second;
  KernelSpec spec = KernelSpecOf(kernel);
  spec.threads = threads_;
  const auto planned = kernels_->Plan(spec);
  if (!planned.ok()) return {};
  return known->second = planned->memory;
}

}  // namespace braid
