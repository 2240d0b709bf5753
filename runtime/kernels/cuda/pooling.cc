// Of KernelSpecs: max_pool, avg_pool and their gradients.
#include "runtime/kernels/cuda/pooling.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/ops/window.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/channels_last.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

PoolDivisor DivisorOf(const Attrs& attrs) {
  const std::string divisor = attrs.Has("divisor") ? attrs.String("divisor") : "elements";
  return divisor == "padded" ? PoolDivisor::kPadded
         : divisor == "one"  ? PoolDivisor::kOne
                             : PoolDivisor::kElements;
}

// Of floating operands that all have one type.
absl::StatusOr<PoolLaunch> LaunchOf(const PlainSpec& plain, const Shape& x, const Shape& y) {
  const KernelSpec& spec = plain.spec;
  PoolLaunch launch = {.dtype = spec.inputs[0].dtype, .divisor = DivisorOf(spec.attrs)};
  bool has_kernel = IsFloating(launch.dtype) && spec.outputs[0].dtype == launch.dtype;
  for (const OperandSpec& input : spec.inputs) {
    has_kernel = has_kernel && input.dtype == launch.dtype;
  }
  if (!has_kernel) return UnsupportedTypes(spec);
  BRAID_ASSIGN_OR_RETURN(const bool channels_last, HaveChannelsLast(plain, {0, 1}, {0}));
  launch.planes = x[0] * x[1];
  if (channels_last) launch.channels = std::max<int64_t>(1, x[1]);
  std::vector<WindowAxis> windows;
  if (spec.attrs.Has("kernel")) {
    BRAID_ASSIGN_OR_RETURN(windows, WindowsOf(spec.attrs, spec.attrs.Ints("kernel")));
  }
  const int space = x.rank() - 2;
  for (int i = 0; i < space; ++i) {
    PoolAxis& axis = launch.axes[3 - space + i];
    axis.size = static_cast<int32_t>(x[i + 2]);
    axis.windows = static_cast<int32_t>(y[i + 2]);
    axis.is_adaptive = windows.empty();
    if (axis.is_adaptive) continue;
    axis.kernel = static_cast<int32_t>(windows[i].kernel);
    axis.stride = static_cast<int32_t>(windows[i].stride);
    axis.dilation = static_cast<int32_t>(windows[i].dilation);
    axis.pad_begin = static_cast<int32_t>(windows[i].pad_begin);
    axis.pad_end = static_cast<int32_t>(windows[i].pad_end);
  }
  if (launch.y_plane() > INT32_MAX) {
    return absl::UnimplementedError("a cuda kernel pools up to 2^31 - 1 windows of a plane");
  }
  return launch;
}

PlanOr PlanMax(const PlainSpec& plain, const PoolingTable& table) {
  BRAID_ASSIGN_OR_RETURN(const PoolLaunch launch, LaunchOf(plain, plain.spec.inputs[0].shape(),
                                                           plain.spec.outputs[0].shape()));
  const bool with_indices = Flag(plain.spec.attrs, "with_indices");
  return PlanWithWork(
      plain.spec, 0,
      [=, max = table.max](const Queue& queue, const KernelRun& run, std::byte* /*work*/) {
        PoolLaunch now = launch;
        now.x = run.inputs[0];
        now.result = run.outputs[0];
        if (with_indices) now.indices = static_cast<int64_t*>(run.outputs[1]);
        return max(queue, now);
      });
}

PlanOr PlanMaxGradient(const PlainSpec& plain, const PoolingTable& table) {
  BRAID_ASSIGN_OR_RETURN(const PoolLaunch launch, LaunchOf(plain, plain.spec.inputs[0].shape(),
                                                           plain.spec.inputs[1].shape()));
  const int64_t bytes = launch.planes * launch.y_plane() * static_cast<int64_t>(sizeof(int32_t));
  return PlanWithWork(
      plain.spec, bytes,
      [=, max_grad = table.max_grad](const Queue& queue, const KernelRun& run, std::byte* work) {
        PoolLaunch now = launch;
        now.x = run.inputs[0];
        now.dy = run.inputs[1];
        now.result = run.outputs[0];
        now.work = work;
        return max_grad(queue, now);
      });
}

PlanOr PlanAverage(const PlainSpec& plain, const PoolingTable& table) {
  BRAID_ASSIGN_OR_RETURN(const PoolLaunch launch, LaunchOf(plain, plain.spec.inputs[0].shape(),
                                                           plain.spec.outputs[0].shape()));
  return PlanWithWork(
      plain.spec, 0,
      [=, average = table.average](const Queue& queue, const KernelRun& run, std::byte* /*work*/) {
        PoolLaunch now = launch;
        now.x = run.inputs[0];
        now.result = run.outputs[0];
        return average(queue, now);
      });
}

PlanOr PlanAverageGradient(const PlainSpec& plain, const PoolingTable& table) {
  BRAID_ASSIGN_OR_RETURN(const PoolLaunch launch, LaunchOf(plain, plain.spec.outputs[0].shape(),
                                                           plain.spec.inputs[0].shape()));
  return PlanWithWork(plain.spec, 0,
                      [=, average_grad = table.average_grad](
                          const Queue& queue, const KernelRun& run, std::byte* /*work*/) {
                        PoolLaunch now = launch;
                        now.dy = run.inputs[0];
                        now.result = run.outputs[0];
                        return average_grad(queue, now);
                      });
}

}  // namespace

absl::Status RegisterPoolingKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, auto plan) {
    return registry.Register(name, [plan, pooling = &table.pooling](const KernelSpec& s) -> PlanOr {
      BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(s));
      return plan(plain, *pooling);
    });
  };
  BRAID_RETURN_IF_ERROR(add("max_pool", PlanMax));
  BRAID_RETURN_IF_ERROR(add("max_pool_grad", PlanMaxGradient));
  BRAID_RETURN_IF_ERROR(add("avg_pool", PlanAverage));
  return add("avg_pool_grad", PlanAverageGradient);
}

}  // namespace braid::cuda
