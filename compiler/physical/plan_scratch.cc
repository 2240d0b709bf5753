#include "compiler/physical/plan_scratch.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/physical/keep_steady.h"

namespace braid::compiler {
namespace {

// Free bytes below the highest end so far, by place and by size.
class FreeList {
 public:
  int64_t Take(int64_t bytes) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best != by_size_.end()) {
      const auto [hole, offset] = *best;
      Remove(offset, hole);
      if (hole > bytes) Insert(offset + bytes, hole - bytes);
      return offset;
    }
    // A hole at the very end only has to grow.
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [last, hole] = *by_offset_.rbegin();
      if (last + hole == end_) {
        offset = last;
        Remove(last, hole);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, hole] = *std::prev(next);
      if (before + hole == offset) {
        Remove(before, hole);
        offset = before;
        bytes += hole;
      }
    }
    const auto after = by_offset_.find(offset + bytes);
    if (after != by_offset_.end()) {
      const auto [begin, hole] = *after;
      Remove(begin, hole);
      bytes += hole;
    }
    Insert(offset, bytes);
  }

 private:
  void Insert(int64_t offset, int64_t bytes) {
    by_offset_[offset] = bytes;
    by_size_.insert({bytes, offset});
  }
  void Remove(int64_t offset, int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

bool IsScratch(const OperandRef& ref) { return ref.source == OperandRef::Source::kScratch; }

// By scratch: the last kernel that uses it; kForever if it lasts.
constexpr int kForever = std::numeric_limits<int>::max();
std::vector<int> LastUses(const Compute& compute) {
  std::vector<int> last_use(compute.scratch.size(), kNone);
  for (size_t k = 0; k < compute.kernels.size(); ++k) {
    for (const auto* refs : {&compute.kernels[k].inputs, &compute.kernels[k].outputs}) {
      for (const OperandRef& ref : *refs) {
        if (IsScratch(ref)) last_use[ref.index] = static_cast<int>(k);
      }
    }
  }
  const std::vector<bool> lasts = LastingScratch(compute);
  for (size_t i = 0; i < lasts.size(); ++i) {
    if (lasts[i]) last_use[i] = kForever;
  }
  return last_use;
}

// On every rank both are boxes of the same shape and bytes: what runs in place must be neither
// broadcast nor smaller than what it replaces. Where as many elements have another shape, nothing
// is broadcast but axes of one, and each rank holds what it held (reshape).
bool IsSameBox(const TensorLayout& a, const TensorLayout& b, const Placement& placement) {
  if (SizeOf(a.type.dtype) != SizeOf(b.type.dtype) || a.micro_batches != b.micro_batches)
    return false;
  if (a.type.shape == b.type.shape) return a.sbp == b.sbp && a.micro_batch_sbp == b.micro_batch_sbp;
  return a.type.shape.num_elements() == b.type.shape.num_elements() &&
         MaxBytesOf(a, placement) == MaxBytesOf(b, placement);
}

// The scratch whose bytes output `output` of kernel `index`, which is `layout`, may take over, or
// kNone.
int InplaceSource(const OpRegistry& registry, const TaskGroup& group, int index, int output,
                  const TensorLayout& layout, const std::vector<int>& last_use) {
  const auto& compute = std::get<Compute>(group.work);
  const KernelCall& kernel = compute.kernels[index];
  const OpDef* const def = registry.Find(kernel.op);
  if (def == nullptr) return kNone;
  for (const auto& [from, to] : def->inplace()) {
    if (to != output || from >= static_cast<int>(kernel.inputs.size())) continue;
    const OperandRef& ref = kernel.inputs[from];
    if (!IsScratch(ref) || last_use[ref.index] != index) continue;
    // Another operand of this kernel may be read after the first bytes were overwritten.
    if (std::count(kernel.inputs.begin(), kernel.inputs.end(), ref) != 1) continue;
    if (IsSameBox(compute.scratch[ref.index].layout, layout, group.placement)) return ref.index;
  }
  return kNone;
}

// Where a kernel that may work inplace writes an output of the group out of scratch that ends
// there, that scratch becomes the output's bytes from its first kernel on: a slot belongs to the
// act from its beginning to its end. Backwards, so that a run of such kernels has one place.
void WriteIntoOutputs(const OpRegistry& registry, const PhysicalGraph& graph, TaskGroup& group) {
  auto& compute = std::get<Compute>(group.work);
  const std::vector<int> last_use = LastUses(compute);
  const OperandRef scratch{.source = OperandRef::Source::kScratch};
  std::vector<OperandRef> moved_to(compute.scratch.size(), scratch);
  for (int k = static_cast<int>(compute.kernels.size()) - 1; k >= 0; --k) {
    KernelCall& kernel = compute.kernels[k];
    for (size_t i = 0; i < kernel.outputs.size(); ++i) {
      OperandRef& written = kernel.outputs[i];
      if (IsScratch(written) && !IsScratch(moved_to[written.index])) {
        written = moved_to[written.index];
      }
      if (IsScratch(written)) continue;
      const Register& reg = graph.reg(group.outputs[written.index]);
      if (reg.period != 1 || reg.placement != group.placement) continue;
      const int source = InplaceSource(registry, group, k, static_cast<int>(i),
                                       reg.parts[written.part].layout, last_use);
      if (source != kNone && IsScratch(moved_to[source])) moved_to[source] = written;
    }
  }
  std::vector<Scratch> kept;
  for (size_t i = 0; i < moved_to.size(); ++i) {
    if (!IsScratch(moved_to[i])) continue;
    moved_to[i].index = static_cast<int>(kept.size());
    kept.push_back(std::move(compute.scratch[i]));
  }
  compute.scratch = std::move(kept);
  for (KernelCall& kernel : compute.kernels) {
    for (auto* refs : {&kernel.inputs, &kernel.outputs}) {
      for (OperandRef& ref : *refs) {
        if (IsScratch(ref)) ref = moved_to[ref.index];
      }
    }
  }
}

}  // namespace

void PlanScratch(const OpRegistry& registry, const PhysicalGraph& graph, TaskGroup& group) {
  auto& compute = std::get<Compute>(group.work);
  WriteIntoOutputs(registry, graph, group);
  std::vector<int64_t> bytes;
  for (Scratch& scratch : compute.scratch) {
    scratch.offset = -1;
    const int64_t dense = std::max<int64_t>(1, MaxBytesOf(scratch.layout, group.placement));
    bytes.push_back(AlignInArena(dense));
  }
  const std::vector<int> last_use = LastUses(compute);
  FreeList passing, kept;
  const auto free_list_of = [&](int index) -> FreeList& {
    return compute.scratch[index].is_kept ? kept : passing;
  };
  for (size_t k = 0; k < compute.kernels.size(); ++k) {
    const KernelCall& kernel = compute.kernels[k];
    std::set<int> ending;  // scratch whose bytes are free after this kernel
    for (const auto* refs : {&kernel.inputs, &kernel.outputs}) {
      for (const OperandRef& ref : *refs) {
        if (IsScratch(ref) && last_use[ref.index] == static_cast<int>(k)) ending.insert(ref.index);
      }
    }
    for (size_t i = 0; i < kernel.outputs.size(); ++i) {
      if (!IsScratch(kernel.outputs[i])) continue;
      const int index = kernel.outputs[i].index;
      Scratch& scratch = compute.scratch[index];
      if (scratch.offset >= 0) continue;
      const int source = InplaceSource(registry, group, static_cast<int>(k), static_cast<int>(i),
                                       scratch.layout, last_use);
      if (source != kNone && ending.contains(source)) {
        ending.erase(source);
        scratch.offset = compute.scratch[source].offset;
      } else {
        scratch.offset = free_list_of(index).Take(bytes[index]);
      }
    }
    for (int index : ending) {
      if (compute.scratch[index].offset >= 0)
        free_list_of(index).Give(compute.scratch[index].offset, bytes[index]);
    }
  }
  // What no kernel writes still has an address.
  for (Scratch& scratch : compute.scratch) scratch.offset = std::max<int64_t>(scratch.offset, 0);
}

}  // namespace braid::compiler
