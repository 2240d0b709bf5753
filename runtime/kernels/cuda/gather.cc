// Of KernelSpecs: gather, gather_elements, gather_nd, one_hot. The axes that are picked from may be
// split: what is elsewhere counts as zeros.
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/picks.h"

namespace braid::cuda {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

KernelOr MakeRead(const KernelTable& table, const KernelSpec& spec, PickBy by) {
  const PickOperands operands = {.by = by, .indices = 1, .table_is_input = true};
  if (!IsIndexType(spec.inputs[1].dtype) || spec.inputs[0].dtype != spec.outputs[0].dtype) {
    return UnsupportedTypes(spec);
  }
  BRAID_RETURN_IF_ERROR(PicksOf(spec, operands, 0, nullptr).status());
  return MakeKernel([&table, spec, operands](const Queue& queue, const KernelRun& run) {
    return table.gather.read(
        queue, {.picks = *PicksOf(spec, operands, run.micro_batch, run.inputs[1]),
                .table = run.inputs[0],
                .out = run.outputs[0],
                .element_bytes = static_cast<int64_t>(SizeOf(spec.outputs[0].dtype))});
  });
}

// The bits of one.
uint64_t OneOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x3f800000u;
    case DType::kF64:
      return uint64_t{0x3ff} << 52;
    case DType::kBF16:
      return BFloat16(1.0f).bits;
    case DType::kF16:
      return Float16(1.0f).bits;
    default:
      return 1;
  }
}

KernelOr MakeOneHot(const KernelTable& table, const KernelSpec& spec) {
  const OperandSpec &indices = spec.inputs[0], &out = spec.outputs[0];
  if (!IsIndexType(indices.dtype)) return UnsupportedTypes(spec);
  const int axis =
      spec.attrs.Has("axis") ? static_cast<int>(spec.attrs.Int("axis")) : out.shape().rank() - 1;
  const AxisView view = ViewAround(out.shape(), axis);
  const OneHotLaunch all = {.is_i64 = indices.dtype == DType::kI64,
                            .element_bytes = static_cast<int64_t>(SizeOf(out.dtype)),
                            .elements = out.num_elements(),
                            .size = view.size,
                            .inner = view.inner,
                            .all = out.logical[axis],
                            .bits = OneOf(out.dtype)};
  return MakeKernel([&table, all, out, axis](const Queue& queue, const KernelRun& run) {
    OneHotLaunch launch = all;
    launch.to = run.outputs[0];
    launch.index = run.inputs[0];
    launch.offset = OffsetAt(out, axis, run.micro_batch);
    return table.gather.one_hot(queue, launch);
  });
}

}  // namespace

absl::Status RegisterGatherKernels(const KernelTable& table, KernelRegistry& registry) {
  struct Reading {
    const char* name;
    PickBy by;
  };
  for (const auto& [name, by] :
       {Reading{"gather", PickBy::kRows}, Reading{"gather_elements", PickBy::kElements},
        Reading{"gather_nd", PickBy::kNd}}) {
    BRAID_RETURN_IF_ERROR(registry.Register(
        name, [&table, by = by](const KernelSpec& spec) { return MakeRead(table, spec, by); }));
  }
  return registry.Register("one_hot",
                           [&table](const KernelSpec& spec) { return MakeOneHot(table, spec); });
}

}  // namespace braid::cuda
