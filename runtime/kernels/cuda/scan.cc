// Of KernelSpecs: running sums and products.
#include "runtime/kernels/cuda/scan.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/kernels/cuda/floating_type.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/register_scan.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

constexpr int64_t kManySeries = 4096;  // that keep a card busy
constexpr int64_t kChunkSize = 512;    // at least

PlanOr PlanScan(const ScanTable& table, const KernelSpec& spec, bool is_product) {
  const DType type = spec.inputs[0].dtype;
  const bool is_known = IsFloating(type) || type == DType::kI32 || type == DType::kI64;
  if (!is_known || spec.outputs[0].dtype != type) return UnsupportedTypes(spec);
  const AxisView view =
      ViewAround(spec.outputs[0].shape(), static_cast<int>(spec.attrs.Int("axis")));
  ScanLaunch launch = {.type = type,
                       .outer = view.outer,
                       .size = view.size,
                       .inner = view.inner,
                       .chunk_size = view.size,
                       .is_product = is_product,
                       .is_exclusive = Flag(spec.attrs, "exclusive"),
                       .is_reverse = Flag(spec.attrs, "reverse")};
  const int64_t series = view.outer * view.inner;
  if (series > 0) {
    launch.chunks =
        std::clamp<int64_t>(kManySeries / series, 1, std::max<int64_t>(1, view.size / kChunkSize));
    launch.chunk_size = (view.size + launch.chunks - 1) / launch.chunks;
  }
  const int64_t totals = launch.chunks > 1 ? launch.chunks * series : 0;
  return PlanWithWork(spec, totals * static_cast<int64_t>(sizeof(double)),
                      [launch, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        ScanLaunch now = launch;
                        now.x = run.inputs[0];
                        now.out = run.outputs[0];
                        now.totals = work;
                        return table.scan(queue, now);
                      });
}

PlanOr PlanProductGrad(const ScanTable& table, const KernelSpec& spec) {
  const std::optional<DType> type = FloatingTypeOf(spec);
  if (!type.has_value()) return UnsupportedTypes(spec);
  const AxisView view =
      ViewAround(spec.outputs[0].shape(), static_cast<int>(spec.attrs.Int("axis")));
  const ScanGradLaunch launch = {.type = *type,
                                 .outer = view.outer,
                                 .size = view.size,
                                 .inner = view.inner,
                                 .is_exclusive = Flag(spec.attrs, "exclusive"),
                                 .is_reverse = Flag(spec.attrs, "reverse")};
  const bool is_narrow = IsNarrow(*type);
  const int64_t tails = is_narrow ? spec.outputs[0].num_elements() : 0;
  return PlanWithWork(
      spec, tails * static_cast<int64_t>(sizeof(float)),
      [launch, is_narrow, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
        ScanGradLaunch now = launch;
        now.x = run.inputs[0];
        now.dy = run.inputs[1];
        now.dx = run.outputs[0];
        now.tails = is_narrow ? work : run.outputs[0];
        return table.product_grad(queue, now);
      });
}

}  // namespace

absl::Status RegisterScanKernels(const ScanTable& table, KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("cumsum", [&table](const KernelSpec& spec) {
    return PlanScan(table, spec, /*is_product=*/false);
  }));
  BRAID_RETURN_IF_ERROR(registry.Register("cumprod", [&table](const KernelSpec& spec) {
    return PlanScan(table, spec, /*is_product=*/true);
  }));
  return registry.Register(
      "cumprod_grad", [&table](const KernelSpec& spec) { return PlanProductGrad(table, spec); });
}

}  // namespace braid::cuda
