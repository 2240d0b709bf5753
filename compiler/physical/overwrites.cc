#include "compiler/physical/overwrites.h"

#include <algorithm>

namespace braid::compiler {
namespace {

// True if the group reads `part` of its input `index`.
bool Reads(const TaskGroup& group, int index, int part) {
  switch (group.kind) {
    case GroupKind::kExchange:
      return index == 0 && group.part == part;
    case GroupKind::kCollective:
    case GroupKind::kVariable:
    case GroupKind::kStaging:
      return index == 0;
    case GroupKind::kCompute:
      break;
  }
  const OperandRef wanted{OperandRef::Source::kInput, index, part};
  return std::any_of(group.kernels.begin(), group.kernels.end(), [&](const KernelCall& kernel) {
    return std::find(kernel.inputs.begin(), kernel.inputs.end(), wanted) != kernel.inputs.end();
  });
}

}  // namespace

std::vector<Overwrite> Overwrites(const PhysicalGraph& graph, const OpRegistry& registry) {
  const auto consumers = graph.Consumers();
  std::vector<Overwrite> overwrites;
  for (const TaskGroup& group : graph.groups()) {
    if (group.kind != GroupKind::kCompute) continue;
    for (size_t k = 0; k < group.kernels.size(); ++k) {
      const KernelCall& kernel = group.kernels[k];
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
