// Of KernelSpecs: batch normalization.
#include "runtime/kernels/cuda/batch_norm.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/block_shapes.h"
#include "runtime/kernels/cuda/channels_last.h"
#include "runtime/kernels/cuda/make_kernel.h"
#include "runtime/kernels/cuda/register_batch_norm.h"

namespace braid::cuda {
namespace {

using PlanOr = absl::StatusOr<PlannedKernel>;

constexpr int64_t kShortSpace = 16;
constexpr int64_t kPart = 4096;  // elements that a block sums, at least

// A micro-batch is a batch of its own, as are the groups of attribute groups. INVALID_ARGUMENT
// where these are not whole.
absl::StatusOr<BatchLayout> LayoutOf(const KernelSpec& spec, bool channels_last) {
  const OperandSpec& x = spec.inputs[0];
  const AxisView view = ViewAround(x.shape(), 1);
  BatchLayout layout = {.images = view.outer, .channels = view.size, .space = view.inner};
  int64_t images = x.micro_batch_axis == 0 ? x.micro_batch_stride : x.logical[0];
  if (spec.attrs.Has("groups")) {
    images = x.logical[0] / spec.attrs.Int("groups");
    if (images > 0 && view.outer % images != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s '%s': a part of %d images has no whole groups of %d images", spec.op,
                          spec.name, view.outer, images));
    }
    layout.groups = images > 0 ? view.outer / images : 0;
    layout.images = images;
  }
  layout.count = static_cast<double>(images);
  for (int axis = 2; axis < x.logical.rank(); ++axis) {
    layout.count *= static_cast<double>(x.logical[axis]);
  }
  layout.count = std::max(layout.count, 1.0);
  if (channels_last) {
    layout.images *= layout.space;
    layout.space = 1;
  }
  return layout;
}

// Channels that a thread reads in 16 bytes, if they come so.
int64_t NeighboursOf(DType type, int64_t channels) {
  const auto size = static_cast<int64_t>(16 / SizeOf(type));
  return type != DType::kF64 && channels % size == 0 ? size : 1;
}

// How the sums are shared by threads.
void Cut(BatchSumsLaunch& launch) {
  const BatchLayout& layout = launch.layout;
  launch.is_short = layout.space < kShortSpace;
  int64_t blocks = layout.channels;
  if (launch.is_short) {
    // A thread has one of them, or some neighbouring channels.
    const int64_t neighbours = layout.space == 1 ? NeighboursOf(launch.type, layout.channels) : 1;
    const int64_t elements = layout.channels * layout.space / neighbours;
    launch.lanes = PowerOfTwo(elements, 32);
    launch.rows = PowerOfTwo(DivideUp(layout.images, 8), kBlockThreads / launch.lanes);
    blocks = DivideUp(elements, launch.lanes);
  } else {
    const int64_t neighbours = launch.type == DType::kF64 ? 1 : 4;
    launch.lanes = PowerOfTwo(layout.space / neighbours, kBlockThreads);
    launch.rows = PowerOfTwo(layout.images, kBlockThreads / launch.lanes);
  }
  const int64_t space = launch.is_short ? launch.lanes : layout.space;
  const int64_t wanted = kManyBlocks / std::max<int64_t>(1, blocks * layout.groups);
  const int64_t most = std::min(layout.images / launch.rows, layout.images * space / kPart);
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, most));
  launch.part_images = std::max<int64_t>(1, DivideUp(layout.images, parts));
  launch.parts = std::max<int64_t>(1, DivideUp(layout.images, launch.part_images));
}

// Whether the numbers are f32 of a narrow x: channel_sum makes them, the others are given some.
bool HasWideNumbers(const KernelSpec& spec) {
  const DType numbers = spec.inputs.size() > 1 ? spec.inputs[1].dtype : spec.outputs[0].dtype;
  return numbers != spec.inputs[0].dtype;
}

PlanOr PlanSums(const BatchNormTable& table, const KernelSpec& given, BatchSum kind) {
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(given));
  const KernelSpec& spec = plain.spec;
  const bool is_gradient = kind == BatchSum::kGradients;
  BRAID_ASSIGN_OR_RETURN(
      const bool channels_last,
      HaveChannelsLast(plain, is_gradient ? std::vector<int>{0, 3} : std::vector<int>{0}, {}));
  const DType type = spec.inputs[0].dtype;
  BatchSumsLaunch launch = {.type = type, .kind = kind};
  BRAID_ASSIGN_OR_RETURN(launch.layout, LayoutOf(spec, channels_last));
  Cut(launch);
  const BatchLayout& layout = launch.layout;
  launch.rectifies = Flag(spec.attrs, "relu");
  launch.statistics.are_wide = HasWideNumbers(spec);
  launch.statistics.epsilon = Number(spec.attrs, "epsilon", 0);
  if (kind == BatchSum::kSquares || Flag(spec.attrs, "training")) {
    launch.statistics.divisor = layout.count;
  }
  const int64_t columns = layout.channels * (launch.is_short ? layout.space : 1);
  return PlanWithWork(spec, 2 * layout.groups * launch.parts * columns * WideBytes(type),
                      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        BatchSumsLaunch now = launch;
                        now.x = run.inputs[0];
                        now.sums = work;
                        now.out[0] = run.outputs[0];
                        if (kind != BatchSum::kValues) now.statistics.mean = run.inputs[1];
                        if (is_gradient) {
                          now.statistics.variance = run.inputs[2];
                          now.dy = run.inputs[3];
                          now.out[1] = run.outputs[1];
                          if (now.rectifies) {
                            now.statistics.gamma = run.inputs[4];
                            now.statistics.beta = run.inputs[5];
                          }
                        }
                        return table.sums(queue, now);
                      });
}

PlanOr PlanNorm(const BatchNormTable& table, const KernelSpec& given, bool is_gradient) {
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(given));
  const KernelSpec& spec = plain.spec;
  BRAID_ASSIGN_OR_RETURN(const bool channels_last,
                         HaveChannelsLast(plain, {0, is_gradient ? 4 : 5}, {0}));
  const DType type = spec.inputs[0].dtype;
  BatchNormLaunch launch = {.type = type};
  BRAID_ASSIGN_OR_RETURN(launch.layout, LayoutOf(spec, channels_last));
  launch.rectifies = Flag(spec.attrs, "relu");
  launch.statistics.are_wide = HasWideNumbers(spec);
  launch.statistics.epsilon = spec.attrs.Double("epsilon");
  if (is_gradient || Flag(spec.attrs, "training")) launch.statistics.divisor = launch.layout.count;
  const int64_t channels = launch.layout.groups * launch.layout.channels;
  const bool adds = !is_gradient && spec.inputs.size() > 5;
  return PlanWithWork(spec, channels * kBatchNumbers * WideBytes(type),
                      [=, &table](const Queue& queue, const KernelRun& run, std::byte* work) {
                        BatchNormLaunch now = launch;
                        now.x = run.inputs[0];
                        now.statistics.mean = run.inputs[1];
                        now.statistics.variance = run.inputs[2];
                        now.statistics.gamma = run.inputs[3];
                        now.out = run.outputs[0];
                        now.numbers = work;
                        if (is_gradient) {
                          now.dy = run.inputs[4];
                          now.dgamma = run.inputs[5];
                          now.dbeta = run.inputs[6];
                          if (now.rectifies) now.statistics.beta = run.inputs[7];
                        } else {
                          now.statistics.beta = run.inputs[4];
                          if (adds) now.more = run.inputs[5];
                        }
                        return table.norm(queue, now);
                      });
}

}  // namespace

absl::Status RegisterBatchNormKernels(const BatchNormTable& table, KernelRegistry& registry) {
  const auto add_sums = [&](const char* name, BatchSum kind) {
    return registry.Register(
        name, [=, &table](const KernelSpec& spec) { return PlanSums(table, spec, kind); });
  };
  BRAID_RETURN_IF_ERROR(add_sums("channel_sum", BatchSum::kValues));
  BRAID_RETURN_IF_ERROR(add_sums("batch_moment", BatchSum::kSquares));
  BRAID_RETURN_IF_ERROR(add_sums("batch_norm_sums", BatchSum::kGradients));
  BRAID_RETURN_IF_ERROR(registry.Register("batch_norm", [&table](const KernelSpec& spec) {
    return PlanNorm(table, spec, /*is_gradient=*/false);
  }));
  return registry.Register("batch_norm_dx", [&table](const KernelSpec& spec) {
    return PlanNorm(table, spec, /*is_gradient=*/true);
  });
}

}  // namespace braid::cuda
