#include "compiler/physical/keep_steady.h"

#include <algorithm>

#include "compiler/physical/overwrites.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

using Source = OperandRef::Source;

// What a kernel makes is kept up to so many times the bytes of the variables that it is made of (a
// cast of bytes to f32), or up to so many bytes.
constexpr int64_t kMostGrowth = 4;
constexpr int64_t kSmallBytes = 1 << 20;

bool IsInScratch(const OperandRef& ref) { return ref.source == Source::kScratch; }

int64_t BytesOf(const std::vector<TensorLayout>& layouts, const Placement& placement) {
  int64_t bytes = 0;
  for (const TensorLayout& layout : layouts) bytes += MaxBytesOf(layout, placement);
  return bytes;
}

}  // namespace

bool WritesVariables(const PhysicalGraph& graph, const OpRegistry& registry) {
  const auto is_written = [&](const Register& reg) {
    return reg.producer != kNone && !graph.group(reg.producer).is<VariableOwner>() &&
           std::ranges::any_of(reg.parts, [](const Part& part) { return !part.variable.empty(); });
  };
  return std::ranges::any_of(graph.registers(), is_written) || !Overwrites(graph, registry).empty();
}

bool MayBeSteady(const PhysicalGraph& graph, const OpRegistry& registry, const TaskGroup& group,
                 const KernelCall& kernel) {
  if (group.stream != StreamKind::kCompute || group.acts_per_step != 1 || group.lanes() != 0) {
    return false;
  }
  const OpDef* const def = registry.Find(kernel.op);
  if (def == nullptr || !IsFunction(*def)) return false;
  const auto& compute = std::get<Compute>(group.work);
  const auto is_steady = [&](const OperandRef& ref) {
    if (IsInScratch(ref)) return compute.scratch[ref.index].is_kept;
    return ref.source == Source::kInput &&
           !graph.reg(group.inputs[ref.index].reg).parts[ref.part].variable.empty();
  };
  return std::ranges::all_of(kernel.inputs, is_steady) &&
         std::ranges::all_of(kernel.outputs, IsInScratch);
}

PhysicalGraph KeepSteady(PhysicalGraph graph, const OpRegistry& registry) {
  if (graph.writes_variables) return graph;
  for (const TaskGroup& group : graph.groups()) {
    if (!group.is<Compute>()) continue;
    auto& compute = std::get<Compute>(graph.group(group.id).work);
    std::vector<int64_t> sources(compute.scratch.size(), 0);  // bytes of variables
    for (const KernelCall& kernel : compute.kernels) {
      if (!MayBeSteady(graph, registry, group, kernel)) continue;
      int64_t source = 0;
      for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        source += IsInScratch(kernel.inputs[i])
                      ? sources[kernel.inputs[i].index]
                      : MaxBytesOf(kernel.input_layouts[i], group.placement);
      }
      const int64_t bytes = BytesOf(kernel.output_layouts, group.placement);
      if (bytes == 0 || bytes > std::max(kSmallBytes, kMostGrowth * source)) continue;
      for (const OperandRef& ref : kernel.outputs) {
        compute.scratch[ref.index].is_kept = true;
        sources[ref.index] = source;
      }
    }
  }
  return graph;
}

bool MakesKept(const Compute& compute, const KernelCall& kernel) {
  return std::ranges::any_of(kernel.outputs, [&](const OperandRef& ref) {
    return IsInScratch(ref) && compute.scratch[ref.index].is_kept;
  });
}

std::vector<bool> LastingScratch(const Compute& compute) {
  std::vector<bool> lasts(compute.scratch.size(), false);
  for (const KernelCall& kernel : compute.kernels) {
    if (MakesKept(compute, kernel)) continue;
    for (const OperandRef& ref : kernel.inputs) {
      if (IsInScratch(ref)) lasts[ref.index] = compute.scratch[ref.index].is_kept;
    }
  }
  return lasts;
}

}  // namespace braid::compiler
