// Of KernelSpecs: what adds or writes rows at places that indices name. Each part of a table takes
// what falls into it. The updates are sorted by their places first: so they are joined in the order
// of their positions, and no two threads write one element.
#include <string>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/picks.h"

namespace braid::cuda {
namespace {

using PlannedOr = absl::StatusOr<PlannedKernel>;

// (indices, rows) -> a table of zeros with the rows added.
PlannedOr PlanSum(const KernelTable& table, const KernelSpec& spec, PickBy by) {
  const PickOperands operands = {.by = by, .indices = 0, .table_is_input = false};
  const OperandSpec& out = spec.outputs[0];
  if (!IsIndexType(spec.inputs[0].dtype) || spec.inputs[1].dtype != out.dtype ||
      out.dtype == DType::kBool) {
    return UnsupportedTypes(spec);
  }
  BRAID_ASSIGN_OR_RETURN(const Picks first, CountablePicks(spec, operands));
  const auto element_bytes = static_cast<int64_t>(SizeOf(out.dtype));
  const int64_t entries_bytes = 2 * first.count * kPickEntryBytes;
  const int64_t bytes =
      entries_bytes + AddRowsBytes(first.count, first.outer * first.row, element_bytes);
  return PlanWithWork(
      spec, bytes, [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
        const OperandSpec& to = spec.outputs[0];
        Error error = table.rearrange.fill(
            queue,
            {.to = run.outputs[0], .element_bytes = element_bytes, .elements = to.num_elements()});
        if (error != kDone || to.num_elements() == 0) return error;
        const Picks picks = *PicksOf(spec, operands, run.micro_batch, run.inputs[0]);
        const uint64_t* entries = nullptr;
        error = SortPicks(table, queue, picks, work, entries);
        if (error != kDone) return error;
        return table.scatter.add_rows(queue, {.entries = entries,
                                              .rows = run.inputs[1],
                                              .table = run.outputs[0],
                                              .partial = work + entries_bytes,
                                              .dtype = to.dtype,
                                              .count = picks.count,
                                              .outer = picks.outer,
                                              .row = picks.row,
                                              .slots = picks.slots});
      });
}

Join JoinOf(const std::string& reduction) {
  if (reduction == "mul") return Join::kMul;
  if (reduction == "max") return Join::kMax;
  if (reduction == "min") return Join::kMin;
  return Join::kReplace;
}

// (table, indices, rows) -> the table with the rows put in.
PlannedOr PlanJoin(const KernelTable& table, const KernelSpec& spec, PickBy by) {
  const PickOperands operands = {.by = by, .indices = 1, .table_is_input = true};
  const DType dtype = spec.outputs[0].dtype;
  const Join join = JoinOf(spec.attrs.String("reduction"));
  if (!IsIndexType(spec.inputs[1].dtype) || spec.inputs[0].dtype != dtype ||
      spec.inputs[2].dtype != dtype || (join != Join::kReplace && dtype == DType::kBool)) {
    return UnsupportedTypes(spec);
  }
  BRAID_ASSIGN_OR_RETURN(const Picks first, CountablePicks(spec, operands));
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const int64_t elements = spec.outputs[0].num_elements();
  CopyLaunch copy = {.element_bytes = element_bytes};
  BRAID_ASSIGN_OR_RETURN(copy.walk, WalkOf({elements}, {{1}, {1}}));
  return PlanWithWork(spec, 2 * first.count * kPickEntryBytes,
                      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        Error error = kDone;
                        if (run.outputs[0] != run.inputs[0]) {
                          CopyLaunch whole = copy;
                          whole.to = run.outputs[0];
                          whole.from = run.inputs[0];
                          error = table.rearrange.copy(queue, whole);
                        }
                        if (error != kDone || elements == 0) return error;
                        const Picks picks =
                            *PicksOf(spec, operands, run.micro_batch, run.inputs[1]);
                        const uint64_t* entries = nullptr;
                        error = SortPicks(table, queue, picks, work, entries);
                        if (error != kDone) return error;
                        return table.scatter.join_rows(queue, {.entries = entries,
                                                               .rows = run.inputs[2],
                                                               .table = run.outputs[0],
                                                               .dtype = dtype,
                                                               .element_bytes = element_bytes,
                                                               .count = picks.count,
                                                               .row = picks.row,
                                                               .join = join});
                      });
}

}  // namespace

absl::Status RegisterScatterKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, auto plan, PickBy by) {
    return registry.Register(
        name, [&table, plan, by](const KernelSpec& spec) { return plan(table, spec, by); });
  };
  BRAID_RETURN_IF_ERROR(add("gather_grad", PlanSum, PickBy::kRows));
  BRAID_RETURN_IF_ERROR(add("gather_elements_grad", PlanSum, PickBy::kElements));
  BRAID_RETURN_IF_ERROR(add("gather_nd_grad", PlanSum, PickBy::kNd));
  BRAID_RETURN_IF_ERROR(add("scatter_elements", PlanJoin, PickBy::kElements));
  return add("scatter_nd", PlanJoin, PickBy::kNd);
}

}  // namespace braid::cuda
