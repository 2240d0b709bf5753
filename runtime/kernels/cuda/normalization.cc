// Of KernelSpecs: layer, RMS and group normalization.
#include "runtime/kernels/cuda/normalization.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/block_shapes.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/floating_type.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/register_batch_norm.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

constexpr int64_t kManyParts = 512;  // of rows, that keep a card busy
constexpr int64_t kPartRows = 64;    // whose terms of dgamma and dbeta are summed, at least

enum class RowNormKind { kLayer, kRms };

PlanOr PlanRowNorm(const NormalizationTable& table, const KernelSpec& spec, RowNormKind kind) {
  const DType y_type = spec.outputs[0].dtype;
  KernelSpec of_one_type = spec;
  if (IsNarrow(y_type) && spec.inputs[0].dtype == DType::kF32) {
    of_one_type.outputs[0].dtype = DType::kF32;
  }
  const std::optional<DType> type = FloatingTypeOf(of_one_type);
  if (!type.has_value()) return UnsupportedTypes(spec);
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  const RowNormLaunch launch = {.type = *type,
                                .y_type = y_type,
                                .rows = view.outer,
                                .size = view.size,
                                .epsilon = spec.attrs.Double("epsilon")};
  const bool is_layer = kind == RowNormKind::kLayer;
  return PlanWithWork(spec, 0, [=, &table](const Queue& queue, const KernelRun& run, std::byte*) {
    RowNormLaunch now = launch;
    now.x = run.inputs[0];
    now.gamma = run.inputs[1];
    now.y = run.outputs[0];
    if (is_layer) {
      now.beta = run.inputs[2];
      now.mean = run.outputs[1];
    }
    now.rstd = run.outputs[is_layer ? 2 : 1];
    return table.row_norm(queue, now);
  });
}

PlanOr PlanRowNormGrad(const NormalizationTable& table, const KernelSpec& spec, RowNormKind kind) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  const Shape& shape = spec.inputs[0].shape();
  const AxisView view = ViewAround(shape, shape.rank() - 1);
  RowNormGradLaunch launch = {.type = *type, .rows = view.outer, .size = view.size};
  const int64_t pack = *type == DType::kF64 ? 1 : *type == DType::kF32 ? 4 : 8;
  const int64_t columns = view.size % pack == 0 ? view.size / pack : view.size;
  launch.lanes = PowerOfTwo(columns, 32);
  launch.block_rows = PowerOfTwo(DivideUp(view.outer, 8), kBlockThreads / launch.lanes);
  const int64_t wanted = kManyParts / std::max<int64_t>(1, DivideUp(columns, launch.lanes));
  const int64_t parts =
      std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, view.outer / kPartRows));
  launch.part_rows = std::max<int64_t>(1, DivideUp(view.outer, parts));
  launch.parts = std::max<int64_t>(1, DivideUp(view.outer, launch.part_rows));
  const bool is_layer = kind == RowNormKind::kLayer;
  return PlanWithWork(spec, 2 * launch.parts * view.size * WideBytes(*type),
                      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        RowNormGradLaunch now = launch;
                        now.x = run.inputs[0];
                        now.gamma = run.inputs[1];
                        if (is_layer) now.mean = run.inputs[2];
                        now.rstd = run.inputs[is_layer ? 3 : 2];
                        now.dy = run.inputs[is_layer ? 4 : 3];
                        now.dx = run.outputs[0];
                        now.dgamma = run.outputs[1];
                        if (is_layer) now.dbeta = run.outputs[2];
                        now.sums = work;
                        return table.row_norm_grad(queue, now);
                      });
}

// Sets the sizes of a GroupNormLaunch or a GroupNormGradLaunch. Parts of the channels must be whole
// groups.
template <class GroupLaunch>
absl::Status SetGroups(const KernelSpec& spec, GroupLaunch& launch) {
  const OperandSpec& x = spec.inputs[0];
  const AxisView view = ViewAround(x.shape(), 1);
  launch.images = view.outer;
  launch.space = view.inner;
  launch.channels = x.logical[1] / spec.attrs.Int("groups");
  launch.groups = launch.channels > 0 ? view.size / launch.channels : 0;
  const bool fits = launch.groups * launch.channels == view.size &&
                    (launch.channels == 0 || x.region.offset[1] % launch.channels == 0);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s '%s': the part %s of x %s is not one of whole groups, which have %d channels", spec.op,
      spec.name, x.region.ToString(), x.logical.ToString(), launch.channels));
}

PlanOr PlanGroupNorm(const NormalizationTable& table, const KernelSpec& spec) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  GroupNormLaunch launch = {.type = *type, .epsilon = spec.attrs.Double("epsilon")};
  BRAID_RETURN_IF_ERROR(SetGroups(spec, launch));
  return PlanWithWork(spec, 0, [=, &table](const Queue& queue, const KernelRun& run, std::byte*) {
    GroupNormLaunch now = launch;
    now.x = run.inputs[0];
    now.gamma = run.inputs[1];
    now.beta = run.inputs[2];
    now.y = run.outputs[0];
    now.mean = run.outputs[1];
    now.rstd = run.outputs[2];
    return table.group_norm(queue, now);
  });
}

PlanOr PlanGroupNormGrad(const NormalizationTable& table, const KernelSpec& spec) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  GroupNormGradLaunch launch = {.type = *type};
  BRAID_RETURN_IF_ERROR(SetGroups(spec, launch));
  const int64_t rows = launch.images * launch.groups * launch.channels;
  return PlanWithWork(spec, 2 * rows * WideBytes(*type),
                      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        GroupNormGradLaunch now = launch;
                        now.x = run.inputs[0];
                        now.gamma = run.inputs[1];
                        now.mean = run.inputs[2];
                        now.rstd = run.inputs[3];
                        now.dy = run.inputs[4];
                        now.dx = run.outputs[0];
                        now.dgamma = run.outputs[1];
                        now.dbeta = run.outputs[2];
                        now.sums = work;
                        return table.group_norm_grad(queue, now);
                      });
}

}  // namespace

absl::Status RegisterNormalizationKernels(const KernelTable& all, KernelRegistry& registry) {
  const NormalizationTable& table = all.normalization;
  for (const auto kind : {RowNormKind::kLayer, RowNormKind::kRms}) {
    const bool is_layer = kind == RowNormKind::kLayer;
    BRAID_RETURN_IF_ERROR(registry.Register(
        is_layer ? "layer_norm" : "rms_norm",
        [=, &table](const KernelSpec& spec) { return PlanRowNorm(table, spec, kind); }));
    BRAID_RETURN_IF_ERROR(registry.Register(
        is_layer ? "layer_norm_grad" : "rms_norm_grad",
        [=, &table](const KernelSpec& spec) { return PlanRowNormGrad(table, spec, kind); }));
  }
  BRAID_RETURN_IF_ERROR(registry.Register(
      "group_norm", [&table](const KernelSpec& spec) { return PlanGroupNorm(table, spec); }));
  BRAID_RETURN_IF_ERROR(registry.Register("group_norm_grad", [&table](const KernelSpec& spec) {
    return PlanGroupNormGrad(table, spec);
  }));
  return RegisterBatchNormKernels(table.batch_norm, registry);
}

}  // namespace braid::cuda
