#include "compiler/physical/plan_scratch.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace braid::compiler {
namespace {

constexpr int64_t kAlignment = 64;

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

// The scratch whose bytes output `output` of the kernel may take over, or kNone.
int InplaceSource(const OpDef& def, const KernelCall& kernel, int output,
                  const std::vector<int>& last_use, int index) {
  for (const auto& [from, to] : def.inplace()) {
    if (to != output || from >= static_cast<int>(kernel.inputs.size())) continue;
    const OperandRef& ref = kernel.inputs[from];
    if (!IsScratch(ref) || last_use[ref.index] != index) continue;
    // Another operand of this kernel may be read after the first bytes were overwritten.
    if (std::count(kernel.inputs.begin(), kernel.inputs.end(), ref) == 1) return ref.index;
  }
  return kNone;
}

// On every rank both are boxes of the same shape and bytes: what runs in place must be neither
// broadcast nor smaller than what it replaces. Where as many elements have another shape, nothing
// is broadcast but axes of one, and each rank holds what it held (reshape).
bool IsSameBox(const TensorLayout& a, const TensorLayout& b, const Placement& placement) {
  if (SizeOf(a.type.dtype) != SizeOf(b.type.dtype) || a.time_parts != b.time_parts) return false;
  if (a.type.shape == b.type.shape) return a.sbp == b.sbp && a.time == b.time;
  return a.type.shape.num_elements() == b.type.shape.num_elements() &&
         MaxBytesOf(a, placement) == MaxBytesOf(b, placement);
}

}  // namespace

void PlanScratch(const OpRegistry& registry, TaskGroup& group) {
  if (group.scratch.empty()) return;
  std::vector<int64_t> bytes;
  for (Scratch& scratch : group.scratch) {
    scratch.offset = -1;
    const int64_t dense = std::max<int64_t>(1, MaxBytesOf(scratch.layout, group.placement));
    bytes.push_back((dense + kAlignment - 1) / kAlignment * kAlignment);
  }
  std::vector<int> last_use(group.scratch.size(), kNone);
  for (size_t k = 0; k < group.kernels.size(); ++k) {
    for (const auto* refs : {&group.kernels[k].inputs, &group.kernels[k].outputs}) {
      for (const OperandRef& ref : *refs) {
        if (IsScratch(ref)) last_use[ref.index] = static_cast<int>(k);
      }
    }
  }
  FreeList free;
  for (size_t k = 0; k < group.kernels.size(); ++k) {
    const KernelCall& kernel = group.kernels[k];
    const OpDef* const def = registry.Find(kernel.op);
    std::set<int> ending;  // scratch whose bytes are free after this kernel
    for (const auto* refs : {&kernel.inputs, &kernel.outputs}) {
      for (const OperandRef& ref : *refs) {
        if (IsScratch(ref) && last_use[ref.index] == static_cast<int>(k)) ending.insert(ref.index);
      }
    }
    for (size_t i = 0; i < kernel.outputs.size(); ++i) {
      if (!IsScratch(kernel.outputs[i])) continue;
      const int index = kernel.outputs[i].index;
      Scratch& scratch = group.scratch[index];
      if (scratch.offset >= 0) continue;
      const int source = def == nullptr ? kNone
                                        : InplaceSource(*def, kernel, static_cast<int>(i), last_use,
                                                        static_cast<int>(k));
      if (source != kNone && ending.contains(source) &&
          IsSameBox(group.scratch[source].layout, scratch.layout, group.placement)) {
        ending.erase(source);
        scratch.offset = group.scratch[source].offset;
      } else {
        scratch.offset = free.Take(bytes[index]);
      }
    }
    for (int index : ending) {
      if (group.scratch[index].offset >= 0) free.Give(group.scratch[index].offset, bytes[index]);
    }
  }
  // What no kernel writes still has an address.
  for (Scratch& scratch : group.scratch) scratch.offset = std::max<int64_t>(scratch.offset, 0);
}

}  // namespace braid::compiler
