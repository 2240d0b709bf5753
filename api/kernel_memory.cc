#include "api/kernel_memory.h"

#include <algorithm>
#include <utility>

#include "compiler/plan/node_plan.pb.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan_read.h"

namespace braid {

KernelMemory KernelMemoryPlanner::Of(const plan::Task& task) {
  KernelMemory memory;
  for (const plan::Kernel& kernel : task.compute().kernels()) {
    const KernelMemory one = Of(kernel);
    memory.own += one.own;
    memory.shared = std::max(memory.shared, one.shared);
  }
  return memory;
}

KernelMemory KernelMemoryPlanner::Of(const plan::Kernel& kernel) {
  if (!kernels_->Has(kernel.op())) return {};
  plan::Kernel likeness = kernel;
  likeness.clear_name();
  likeness.clear_location();
  for (auto* operands : {likeness.mutable_inputs(), likeness.mutable_outputs()}) {
    for (plan::Operand& operand : *operands) {
      plan::Shard shard = operand.shard();
      shard.clear_offset();
      operand.Clear();
      *operand.mutable_shard() = std::move(shard);
    }
  }
  const auto [known, is_first] = of_kernel_.try_emplace(likeness.SerializeAsString());
  if (!is_first) return known->second;
  absl::StatusOr<KernelSpec> spec = KernelSpecOf(kernel);
  if (!spec.ok()) return {};
  spec->threads = threads_;
  const auto made = kernels_->Create(*spec);
  if (!made.ok()) return {};
  return known->second = {(*made)->memory_bytes(), (*made)->shared_bytes()};
}

}  // namespace braid
