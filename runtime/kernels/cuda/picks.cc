#include "runtime/kernels/cuda/picks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

Picks::Axis AxisOf(const OperandSpec& table, int axis, int64_t act) {
  return {.all = table.logical[axis],
          .offset = OffsetAt(table, axis, act),
          .size = table.shape()[axis]};
}

void PickRows(const KernelSpec& spec, const OperandSpec& table, int64_t act, Picks& picks) {
  const int axis = spec.attrs.Has("axis") ? static_cast<int>(spec.attrs.Int("axis")) : 0;
  const AxisView view = ViewAround(table.shape(), axis);
  picks.outer = view.outer;
  picks.row = view.inner;
  picks.slots = view.size;
  picks.rank = 1;
  picks.axes[0] = AxisOf(table, axis, act);
  picks.axes[0].stride = 1;
  picks.per_batch = std::max<int64_t>(picks.count, 1);
}

void PickElements(const KernelSpec& spec, const PickOperands& operands, int64_t act, Picks& picks) {
  const OperandSpec &table = operands.table(spec), &indices = spec.inputs[operands.indices];
  const std::vector<int64_t> strides = DenseStrides(table.shape());
  picks.slots = table.num_elements();
  picks.rank = table.shape().rank();
  picks.axis = static_cast<int32_t>(spec.attrs.Int("axis"));
  for (int d = 0; d < picks.rank; ++d) {
    picks.axes[d] = AxisOf(table, d, act);
    picks.axes[d].stride = strides[d];
    picks.axes[d].count = indices.shape()[d];
    if (d != picks.axis) picks.axes[d].offset -= OffsetAt(indices, d, act);
  }
}

void PickNd(const KernelSpec& spec, const PickOperands& operands, int64_t act, Picks& picks) {
  const OperandSpec &table = operands.table(spec), &indices = spec.inputs[operands.indices];
  const Shape &shape = table.shape(), &index_shape = indices.shape();
  const int last = index_shape.rank() - 1;
  const int batch = static_cast<int>(spec.attrs.Int("batch_dims"));
  picks.rank = static_cast<int32_t>(index_shape[last]);
  const int first_of_row = batch + picks.rank;
  for (int i = first_of_row; i < shape.rank(); ++i) picks.row *= shape[i];
  int64_t stride = 1;
  for (int d = picks.rank - 1; d >= 0; --d) {
    picks.axes[d] = AxisOf(table, batch + d, act);
    picks.axes[d].stride = stride;
    stride *= shape[batch + d];
  }
  picks.batch_slots = stride;
  picks.slots = stride;
  picks.count = picks.per_batch = 1;
  for (int i = 0; i < batch; ++i) {
    picks.slots *= shape[i];
    picks.count *= index_shape[i];
  }
  for (int i = batch; i < last; ++i) picks.per_batch *= index_shape[i];
  picks.count *= picks.per_batch;
}

}  // namespace

absl::StatusOr<Picks> PicksOf(const KernelSpec& spec, const PickOperands& operands, int64_t act,
                              const void* index) {
  const OperandSpec &table = operands.table(spec), &indices = spec.inputs[operands.indices];
  if (table.shape().rank() > kMaxRank) {
    return absl::UnimplementedError(absl::StrFormat("%s '%s': the table %s has more than %d axes",
                                                    spec.op, spec.name, table.shape().ToString(),
                                                    kMaxRank));
  }
  Picks picks = {
      .index = index, .is_i64 = indices.dtype == DType::kI64, .count = indices.num_elements()};
  if (operands.by == PickBy::kRows) PickRows(spec, table, act, picks);
  if (operands.by == PickBy::kElements) PickElements(spec, operands, act, picks);
  if (operands.by == PickBy::kNd) PickNd(spec, operands, act, picks);
  return picks;
}

absl::StatusOr<Picks> CountablePicks(const KernelSpec& spec, const PickOperands& operands) {
  BRAID_ASSIGN_OR_RETURN(const Picks picks, PicksOf(spec, operands, 0, nullptr));
  if (picks.slots < int64_t{kElsewhere} && picks.count < int64_t{kElsewhere}) return picks;
  return absl::UnimplementedError(absl::StrFormat(
      "%s '%s': %d updates of %d places; at most %d of each are possible on a cuda device", spec.op,
      spec.name, picks.count, picks.slots, int64_t{kElsewhere} - 1));
}

Error SortPicks(const KernelTable& table, const Queue& queue, const Picks& picks, std::byte* work,
                const uint64_t*& entries) {
  const Error error =
      table.gather.entries(queue, {.picks = picks, .entries = reinterpret_cast<uint64_t*>(work)});
  if (error != kDone) return error;
  SortLaunch sort = {.entries = work,
                     .other = work + picks.count * kPickEntryBytes,
                     .rows = 1,
                     .size = picks.count,
                     .keep = picks.count,
                     .is_wide = false};
  const Error sort_error = table.sort.sort(queue, sort);
  entries = static_cast<const uint64_t*>(sort.entries);
  return sort_error;
}

}  // namespace braid::cuda
