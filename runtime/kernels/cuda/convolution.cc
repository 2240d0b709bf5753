// Of KernelSpecs: conv, conv_integer, conv_input_grad, conv_weight_grad.
#include "runtime/kernels/cuda/convolution.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "graph/ops/window.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cuda/byte_product.h"
#include "runtime/kernels/cuda/channels_last.h"
#include "runtime/kernels/cuda/divisor.h"
#include "runtime/kernels/cuda/families.h"
#include "runtime/kernels/cuda/make_kernel.h"

namespace braid::cuda {
namespace {

using Side = ConvolutionSide;

// The operands that hold x, w and y; the first two inputs and the output, in the side's order.
struct Sides {
  const OperandSpec &x, &w, &y;
};
Sides SidesOf(const KernelSpec& spec, Side side) {
  const OperandSpec &a = spec.inputs[0], &b = spec.inputs[1], &c = spec.outputs[0];
  if (side == Side::kOutput) return {a, b, c};
  if (side == Side::kInput) return {c, b, a};
  return {a, c, b};
}

// Kernels number pixels, windows and taps by 32 bits, and the elements of an image and its padding.
absl::Status CheckSizes(const KernelSpec& spec, const ConvolutionLaunch& launch) {
  double image = launch.in + 1.0;
  for (const ConvolutionAxis& axis : launch.axes) {
    image *= static_cast<double>(axis.size) + axis.pad_begin + axis.pad_end;
  }
  double largest = image;
  for (const int64_t space : {launch.pixels(), launch.windows()}) {
    largest = std::max(largest, static_cast<double>(launch.batch) * static_cast<double>(space));
  }
  for (const int32_t channels : {launch.in, launch.out}) {
    largest = std::max(largest, static_cast<double>(channels) * static_cast<double>(launch.taps()));
  }
  // Half of what can be divided: places outside are below minus that.
  constexpr double kLargest = kLargestDivided / 2.0;
  if (largest <= kLargest) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "%s '%s': a cuda kernel numbers up to %.0f pixels of a batch, and elements of an image with "
      "its padding; this has %.0f",
      spec.op, spec.name, kLargest, largest));
}

// Parts of channels must be whole groups, the same ones everywhere.
absl::Status SetChannels(const KernelSpec& spec, const Sides& sides, ConvolutionLaunch& launch) {
  const Shape &x = sides.x.shape(), &w = sides.w.shape(), &y = sides.y.shape();
  const int64_t groups = spec.attrs.Int("groups");
  int64_t in = w[1], out = w[0], local = 1;
  if (groups != 1) {
    in = sides.w.logical[1];
    out = sides.w.logical[0] / groups;
    local = in > 0 ? x[1] / in : 0;
  }
  launch.batch = x[0];
  launch.groups = static_cast<int32_t>(local);
  launch.in = static_cast<int32_t>(in);
  launch.out = static_cast<int32_t>(out);
  const bool fits =
      y[0] == x[0] && x[1] == local * in && w[1] == in && w[0] == local * out && y[1] == w[0];
  // Whole groups start at multiples of their channels.
  const bool is_aligned = groups == 1 || local == 0 || out == 0 ||
                          sides.x.region.offset[1] / in * out == sides.w.region.offset[0];
  if (fits && is_aligned) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s '%s': the parts x %s, w %s and y %s with %d groups do not belong together", spec.op,
      spec.name, sides.x.region.ToString(), sides.w.region.ToString(), sides.y.region.ToString(),
      groups));
}

// All but the types and the operands.
absl::StatusOr<ConvolutionLaunch> GeometryOf(const KernelSpec& spec, Side side) {
  ConvolutionLaunch launch;
  launch.side = side;
  const Sides sides = SidesOf(spec, side);
  BRAID_RETURN_IF_ERROR(SetChannels(spec, sides, launch));
  const std::vector<int64_t> space = SpaceOf(sides.x.shape()), windows = SpaceOf(sides.y.shape());
  BRAID_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes,
                         WindowsOf(spec.attrs, SpaceOf(sides.w.shape())));
  for (size_t i = 0; i < axes.size(); ++i) {
    launch.axes[kSpatialAxes - axes.size() + i] = {
        .size = static_cast<int32_t>(space[i]),
        .windows = static_cast<int32_t>(windows[i]),
        .kernel = static_cast<int32_t>(axes[i].kernel),
        .stride = static_cast<int32_t>(axes[i].stride),
        .dilation = static_cast<int32_t>(axes[i].dilation),
        .pad_begin = static_cast<int32_t>(axes[i].pad_begin),
        .pad_end = static_cast<int32_t>(axes[i].pad_end)};
  }
  BRAID_RETURN_IF_ERROR(CheckSizes(spec, launch));
  return launch;
}

absl::StatusOr<ConvolutionLaunch> LaunchOf(const KernelSpec& spec, Side side) {
  const DType dtype = spec.inputs[0].dtype, result = spec.outputs[0].dtype;
  bool has_kernel = IsFloating(dtype) && spec.inputs[1].dtype == dtype &&
                    (result == dtype || (IsNarrow(dtype) && result == DType::kF32));
  if (spec.inputs.size() == 3) has_kernel = has_kernel && spec.inputs[2].dtype == result;
  if (!has_kernel) return UnsupportedTypes(spec);
  BRAID_ASSIGN_OR_RETURN(ConvolutionLaunch launch, GeometryOf(spec, side));
  launch.dtype = dtype;
  launch.wide_result = result != dtype;
  return launch;
}

absl::StatusOr<PlannedKernel> PlanSide(const KernelSpec& given, Side side,
                                       const ConvolutionTable& table) {
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(given));
  const KernelSpec& spec = plain.spec;
  BRAID_ASSIGN_OR_RETURN(ConvolutionLaunch launch, LaunchOf(spec, side));
  const bool makes_weights = side == Side::kWeights;
  BRAID_ASSIGN_OR_RETURN(
      launch.channels_last,
      HaveChannelsLast(plain, makes_weights ? std::vector<int>{0, 1} : std::vector<int>{0},
                       makes_weights ? std::vector<int>{} : std::vector<int>{0}));
  const bool has_bias = spec.inputs.size() == 3;
  const auto convolve = table.convolve;
  return PlanWithWork(spec, launch.WorkBytes(),
                      [=](const Queue& queue, const KernelRun& run, std::byte* work) {
                        ConvolutionLaunch now = launch;
                        now.first = run.inputs[0];
                        now.second = run.inputs[1];
                        if (has_bias) now.bias = run.inputs[2];
                        now.result = run.outputs[0];
                        now.work = work;
                        return convolve(queue, now);
                      });
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeIntegerConvolution(const KernelSpec& spec,
                                                               const IntegerTable& table) {
  BRAID_ASSIGN_OR_RETURN(const ConvolutionLaunch geometry, GeometryOf(spec, Side::kOutput));
  ByteProductLaunch launch = ByteOperandsOf(spec);
  launch.batch = geometry.batch;
  launch.groups = geometry.groups;
  launch.in = geometry.in;
  launch.out = geometry.out;
  launch.w_input = geometry.taps();
  launch.w_output = geometry.in * geometry.taps();
  std::copy(std::begin(geometry.axes), std::end(geometry.axes), std::begin(launch.axes));
  return MakeByteProduct(launch, table, spec.inputs.size());
}

}  // namespace

absl::Status RegisterConvolutionKernels(const KernelTable& table, KernelRegistry& registry) {
  const auto add = [&](const char* name, Side side) {
    return registry.Register(name,
                             [side, convolution = &table.convolution](const KernelSpec& spec) {
                               return PlanSide(spec, side, *convolution);
                             });
  };
  BRAID_RETURN_IF_ERROR(add("conv", Side::kOutput));
  BRAID_RETURN_IF_ERROR(
      registry.Register("conv_integer", [integers = &table.integers](const KernelSpec& spec) {
        return MakeIntegerConvolution(spec, *integers);
      }));
  BRAID_RETURN_IF_ERROR(add("conv_input_grad", Side::kInput));
  return add("conv_weight_grad", Side::kWeights);
}

}  // namespace braid::cuda
