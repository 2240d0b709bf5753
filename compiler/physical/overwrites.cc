#include "compiler/physical/overwrites.h"

#include <algorithm>

namespace braid::compiler {
namespace {

// True if the group reads `part` of its input `index`.
bool Reads(const TaskGroup& group, int index, int part) {
  if (const auto* const exchange = std::get_if<Exchange>(&group.work)) {
    return index == 0 && exchange->movement.part == part;
  }
  const auto* const compute = std::get_if<Compute>(&group.work);
  if (compute == nullptr) return index == 0;
  const OperandRef wanted{OperandRef::Source::kInput, index, part};
  const auto reads = [&](const KernelCall& kernel) {
    return std::find(kernel.inputs.begin(), kernel.inputs.end(), wanted) != kernel.inputs.end();
  };
  return std::any_of(compute->kernels.begin(), compute->kernels.end(), reads);
}

}  // namespace

std::vector<Overwrite> Overwrites(const PhysicalGraph& graph, const OpRegistry& registry) {
  const auto consumers = graph.Consumers();
  std::vector<Overwrite> overwrites;
  for (const TaskGroup& group : graph.groups()) {
    const auto* const compute = std::get_if<Compute>(&group.work);
    if (compute == nullptr) continue;
    for (size_t k = 0; k < compute->kernels.size(); ++k) {
      const KernelCall& kernel = compute->kernels[k];
      const OpDef* const def = registry.Find(kernel.op);
      if (def == nullptr) continue;
      for (int operand : def->mutates()) {
        const OperandRef& ref = kernel.inputs[operand];
        if (ref.source != OperandRef::Source::kInput) continue;
        Overwrite& overwrite = overwrites.emplace_back();
        overwrite.group = group.id;
        overwrite.kernel = static_cast<int>(k);
        overwrite.reg = group.inputs[ref.index].reg;
        overwrite.part = ref.part;
        for (const auto& [reader, index] : consumers[overwrite.reg]) {
          if (reader != group.id && Reads(graph.group(reader), index, ref.part)) {
            overwrite.readers.push_back(reader);
          }
        }
      }
    }
  }
  return overwrites;
}

}  // namespace braid::compiler
