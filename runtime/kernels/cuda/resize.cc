// Of KernelSpecs: resize_axis and its gradient.
#include "runtime/kernels/cuda/resize.h"

#include "graph/ops/resize.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

absl::StatusOr<ResizeLaunch> LaunchOf(const KernelSpec& spec, const Shape& x, const Shape& y) {
  ResizeLaunch launch = {.dtype = spec.inputs[0].dtype};
  launch.element_bytes = static_cast<int64_t>(SizeOf(launch.dtype));
  BRAID_ASSIGN_OR_RETURN(launch.attrs, ResizeOf(spec.attrs));
  const int axis = static_cast<int>(spec.attrs.Int("axis"));
  const AxisView view = ViewAround(x, axis);
  launch.outer = view.outer;
  launch.in = view.size;
  launch.out = y[axis];
  launch.inner = view.inner;
  return launch;
}

PlanOr PlanLaunch(const KernelSpec& spec, const ResizeLaunch& launch,
                  Error (*resize)(const Queue&, const ResizeLaunch&)) {
  return PlanWithWork(spec, launch.WorkBytes(),
                      [=](const Queue& queue, const KernelRun& run, std::byte* work) {
                        ResizeLaunch now = launch;
                        now.from = run.inputs[0];
                        now.to = run.outputs[0];
                        now.work = work;
                        return resize(queue, now);
                      });
}

PlanOr PlanResize(const KernelSpec& spec, const ResizeTable& table) {
  BRAID_ASSIGN_OR_RETURN(const ResizeLaunch launch,
                         LaunchOf(spec, spec.inputs[0].shape(), spec.outputs[0].shape()));
  if (!launch.only_copies() && !IsFloating(launch.dtype)) return UnsupportedTypes(spec);
  return PlanLaunch(spec, launch, table.resize);
}

PlanOr PlanGradient(const KernelSpec& spec, const ResizeTable& table) {
  BRAID_ASSIGN_OR_RETURN(const ResizeLaunch launch,
                         LaunchOf(spec, spec.outputs[0].shape(), spec.inputs[0].shape()));
  if (!IsFloating(launch.dtype)) return UnsupportedTypes(spec);
  return PlanLaunch(spec, launch, table.gradient);
}

}  // namespace

absl::Status RegisterResizeKernels(const KernelTable& table, KernelRegistry& registry) {
  const ResizeTable* resize = &table.resize;
  BRAID_RETURN_IF_ERROR(registry.Register(
      "resize_axis", [=](const KernelSpec& spec) { return PlanResize(spec, *resize); }));
  return registry.Register("resize_axis_grad",
                           [=](const KernelSpec& spec) { return PlanGradient(spec, *resize); });
}

}  // namespace braid::cuda
