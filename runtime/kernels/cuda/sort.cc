// Of KernelSpecs: sort and top_k.
#include <algorithm>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using PlannedOr = absl::StatusOr<PlannedKernel>;

struct Sorted {
  int axis = 0;
  int64_t k = 0;            // how many come out
  bool descending = false;  // the largest first
};

// So many bytes of entries are sorted at once, or one row.
constexpr int64_t kMostBytes = int64_t{64} << 20;

PlannedOr PlanSorted(const KernelTable& table, const KernelSpec& spec, const Sorted& sorted) {
  const OperandSpec& x = spec.inputs[0];
  if (spec.outputs[0].dtype != x.dtype || spec.outputs[1].dtype != DType::kI32) {
    return UnsupportedTypes(spec);
  }
  const AxisView view = ViewAround(x.shape(), sorted.axis);
  SortRows all = {.dtype = x.dtype,
                  .element_bytes = static_cast<int64_t>(SizeOf(x.dtype)),
                  .size = view.size,
                  .inner = view.inner,
                  .rows = view.outer * view.inner,
                  .descending = sorted.descending};
  if (view.size == 0 || sorted.k == 0) all.rows = 0;
  const int64_t row_bytes = view.size * EntryBytes(all.element_bytes);
  const int64_t at_once = std::clamp<int64_t>(kMostBytes / std::max<int64_t>(row_bytes, 1), 1,
                                              std::max<int64_t>(all.rows, 1));
  const int64_t half = all.rows == 0 ? 0 : at_once * row_bytes;
  return PlanWithWork(
      spec, 2 * half,
      [=, &table, keep = sorted.k](const Queue& queue, const KernelRun& run, std::byte* work) {
        for (int64_t first = 0; first < all.rows; first += at_once) {
          SortRows rows = all;
          rows.first_row = first;
          rows.rows = std::min(at_once, all.rows - first);
          Error error =
              table.sort.make_entries(queue, {.rows = rows, .x = run.inputs[0], .entries = work});
          if (error != kDone) return error;
          SortLaunch sort = {.entries = work,
                             .other = work + half,
                             .rows = rows.rows,
                             .size = rows.size,
                             .keep = keep,
                             .is_wide = rows.element_bytes == 8};
          error = table.sort.sort(queue, sort);
          if (error != kDone) return error;
          error = table.sort.take_sorted(queue, {.rows = rows,
                                                 .x = run.inputs[0],
                                                 .entries = sort.entries,
                                                 .keep = keep,
                                                 .stride = sort.stride,
                                                 .values = run.outputs[0],
                                                 .indices = static_cast<int32_t*>(run.outputs[1])});
          if (error != kDone) return error;
        }
        return kDone;
      });
}

PlannedOr PlanSort(const KernelTable& table, const KernelSpec& spec) {
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  return PlanSorted(table, spec,
                    {.axis = axis,
                     .k = spec.inputs[0].shape()[axis],
                     .descending = Flag(spec.attrs, "descending")});
}

PlannedOr PlanTopK(const KernelTable& table, const KernelSpec& spec) {
  return PlanSorted(table, spec,
                    {.axis = static_cast<int>(spec.attrs.Int("axis")),
                     .k = spec.attrs.Int("k"),
                     .descending = Flag(spec.attrs, "largest")});
}

}  // namespace

absl::Status RegisterSortKernels(const KernelTable& table, KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register(
      "sort", [&table](const KernelSpec& spec) { return PlanSort(table, spec); }));
  return registry.Register("top_k",
                           [&table](const KernelSpec& spec) { return PlanTopK(table, spec); });
}

}  // namespace braid::cuda
