#include "compiler/physical/keep_steady.h"

#include <algorithm>

#include "compiler/physical/overwrites.h"
#include "graph/op_roles.h"

namespace braid::compiler {
namespace {

using Source = OperandRef::Source;

// What lasts has up to so many times the bytes of the variables that it is made of (f32 of numbers
// of 4 bits), or up to so many bytes.
constexpr int64_t kMostGrowth = 8;
constexpr int64_t kSmallBytes = 1 << 20;

bool IsInScratch(const OperandRef& ref) { return ref.source == Source::kScratch; }

int64_t BytesOf(const std::vector<TensorLayout>& layouts, const Placement& placement) {
  int64_t bytes = 0;
  for (const TensorLayout& layout : layouts) bytes += MaxBytesOf(layout, placement);
  return bytes;
}

// Which kernels of a group make what is kept.
class Keeping {
 public:
  Keeping(const PhysicalGraph& graph, const OpRegistry& registry, TaskGroup& group)
      : graph_(graph),
        registry_(registry),
        group_(group),
        compute_(std::get<Compute>(group.work)),
        sources_(compute_.scratch.size(), 0) {}

  void Choose() {
    KeepAll();
    while (DropTooLarge()) DropChanging();
  }

 private:
  // All that is steady.
  void KeepAll() {
    for (const KernelCall& kernel : compute_.kernels) {
      if (!MayBeSteady(graph_, registry_, group_, kernel) || BytesMade(kernel) == 0) continue;
      const int64_t source = SourceOf(kernel);
      for (const OperandRef& ref : kernel.outputs) sources_[ref.index] = source;
      SetKept(kernel, true);
    }
  }

  // What would last and is much more than its variables, and what passes on the way to less than it
  // is itself. Backwards, as what is dropped makes last what it reads. False if there is none.
  bool DropTooLarge() {
    std::vector<bool> lasts = LastingScratch(compute_);
    std::vector<int64_t> leads_to(compute_.scratch.size(), 0);  // the most bytes that last
    bool drops = false;
    for (auto kernel = compute_.kernels.rbegin(); kernel != compute_.kernels.rend(); ++kernel) {
      if (!MakesKept(compute_, *kernel)) continue;
      const int64_t bytes = BytesMade(*kernel);
      int64_t most = 0;
      bool has_lasting = false;
      for (const OperandRef& ref : kernel->outputs) {
        has_lasting |= lasts[ref.index];
        most = std::max(most, leads_to[ref.index]);
      }
      const bool is_near = bytes <= std::max(kSmallBytes, kMostGrowth * SourceOf(*kernel));
      const bool drop = !is_near && (has_lasting || bytes > most);
      if (drop) SetKept(*kernel, false);
      drops |= drop;
      if (has_lasting) most = std::max(most, bytes);
      for (const OperandRef& ref : kernel->inputs) {
        if (!IsInScratch(ref)) continue;
        if (drop) lasts[ref.index] = true;
        if (!drop) leads_to[ref.index] = std::max(leads_to[ref.index], most);
      }
    }
    return drops;
  }

  // What is made of something that is no longer kept.
  void DropChanging() {
    for (const KernelCall& kernel : compute_.kernels) {
      const bool is_kept = MakesKept(compute_, kernel);
      if (is_kept && !MayBeSteady(graph_, registry_, group_, kernel)) SetKept(kernel, false);
    }
  }

  void SetKept(const KernelCall& kernel, bool is_kept) {
    for (const OperandRef& ref : kernel.outputs) compute_.scratch[ref.index].is_kept = is_kept;
  }
  // Of variables, that the kernel's results are made of.
  int64_t SourceOf(const KernelCall& kernel) const {
    int64_t source = 0;
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
      const OperandRef& ref = kernel.inputs[i];
      source += IsInScratch(ref) ? sources_[ref.index]
                                 : MaxBytesOf(kernel.input_layouts[i], group_.placement);
    }
    return source;
  }
  int64_t BytesMade(const KernelCall& kernel) const {
    return BytesOf(kernel.output_layouts, group_.placement);
  }

  const PhysicalGraph& graph_;
  const OpRegistry& registry_;
  const TaskGroup& group_;
  Compute& compute_;
  std::vector<int64_t> sources_;  // by scratch: bytes of variables
};

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
    Keeping(graph, registry, graph.group(group.id)).Choose();
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
