// conv, conv_integer, conv_input_grad, conv_weight_grad.
#include "runtime/kernels/cpu/convolution.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "compiler/plan/channel_layouts.h"
#include "runtime/base/status.h"
#include "runtime/kernels/cpu/blocked.h"
#include "runtime/kernels/cpu/families.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/integer_products.h"
#include "runtime/kernels/cpu/make_kernel.h"

namespace braid::cpu {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using Side = ConvolutionSide;

int64_t Product(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

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

// The local shape. Parts of channels must be whole groups, the same ones everywhere.
absl::StatusOr<ConvolutionShape> ShapeOf(const KernelSpec& spec, Side side) {
  const Sides sides = SidesOf(spec, side);
  const Shape &x = sides.x.shape(), &w = sides.w.shape(), &y = sides.y.shape();
  ConvolutionShape shape;
  shape.side = side;
  shape.dtype = spec.inputs[0].dtype;
  shape.wide_result = spec.outputs[0].dtype != shape.dtype;
  shape.batch = x[0];
  shape.space = SpaceOf(x);
  shape.windows = SpaceOf(y);
  BRAID_ASSIGN_OR_RETURN(shape.axes, WindowsOf(spec.attrs, SpaceOf(w)));
  shape.has_bias = spec.inputs.size() == 3;
  shape.by_winograd = Flag(spec.attrs, compiler::kWinograd);
  shape.threads = spec.threads;
  shape.work = spec.work;
  const int64_t groups = spec.attrs.Int("groups");
  if (groups == 1) {
    shape.in = w[1];
    shape.out = w[0];
  } else {
    shape.in = sides.w.logical[1];
    shape.out = sides.w.logical[0] / groups;
    shape.groups = shape.in > 0 ? x[1] / shape.in : 0;
  }
  const bool fits = y[0] == shape.batch && x[1] == shape.groups * shape.in && w[1] == shape.in &&
                    w[0] == shape.groups * shape.out && y[1] == w[0];
  // Whole groups start at multiples of their channels.
  const bool is_aligned =
      groups == 1 || shape.groups == 0 || shape.out == 0 ||
      sides.x.region.offset[1] / shape.in * shape.out == sides.w.region.offset[0];
  if (fits && is_aligned) return shape;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s '%s': the parts x %s, w %s and y %s with %d groups do not belong together", spec.op,
      spec.name, sides.x.region.ToString(), sides.w.region.ToString(), sides.y.region.ToString(),
      groups));
}

bool IsEmpty(const ConvolutionShape& shape) {
  return shape.batch == 0 || shape.x_elements() == 0 || shape.w_elements() == 0 ||
         shape.y_elements() == 0;
}

// Nothing to multiply: zeros, or the bias.
KernelOr MakeEmpty(const KernelSpec& spec) {
  const Shape y = spec.outputs[0].shape();
  const size_t bytes = SizeOf(spec.outputs[0].dtype);
  const bool has_bias = spec.inputs.size() == 3;
  return MakeKernel([=](const KernelRun& run) {
    auto* to = Output<char>(run, 0);
    if (y.num_elements() == 0) return;
    if (!has_bias) {
      std::memset(to, 0, y.num_elements() * bytes);
      return;
    }
    const AxisView view = ViewAround(y, 1);
    for (int64_t i = 0; i < view.outer * view.size; ++i) {
      const char* from = Input<char>(run, 2) + i % view.size * bytes;
      for (int64_t j = 0; j < view.inner; ++j, to += bytes) std::memcpy(to, from, bytes);
    }
  });
}

// A convolution as a kernel.
class ConvolutionCall {
 public:
  ConvolutionCall(std::unique_ptr<Convolution> convolution, bool has_bias)
      : convolution_(std::move(convolution)), has_bias_(has_bias) {}

  KernelMemory memory() const { return convolution_->memory(); }
  void Allocate() { convolution_->Allocate(); }
  void operator()(const KernelRun& run) {
    convolution_->Run({.first = run.inputs[0],
                       .second = run.inputs[1],
                       .bias = has_bias_ ? run.inputs[2] : nullptr,
                       .result = run.outputs[0],
                       .has_same_second = (run.unchanged_inputs & 2) != 0});
  }

 private:
  const std::unique_ptr<Convolution> convolution_;
  const bool has_bias_;
};

absl::StatusOr<PlannedKernel> PlanSide(const KernelSpec& any_spec, Side side) {
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(any_spec));
  const KernelSpec& spec = plain.spec;
  const DType dtype = spec.inputs[0].dtype, result = spec.outputs[0].dtype;
  bool has_kernel =
      dtype == DType::kF32 || dtype == DType::kF64 || (dtype == DType::kBF16 && HasBFloat16Gemm());
  has_kernel = has_kernel && spec.inputs[1].dtype == dtype &&
               (result == dtype || (dtype == DType::kBF16 && result == DType::kF32));
  if (spec.inputs.size() == 3) has_kernel = has_kernel && spec.inputs[2].dtype == result;
  if (!has_kernel) return UnsupportedTypes(spec);
  BRAID_ASSIGN_OR_RETURN(ConvolutionShape shape, ShapeOf(spec, side));
  if (plain.any()) shape.channel_block = plain.block;
  shape.x_is_blocked = side == Side::kInput ? plain.outputs[0] : plain.inputs[0];
  shape.y_is_blocked = side == Side::kOutput  ? plain.outputs[0]
                       : side == Side::kInput ? plain.inputs[0]
                                              : plain.inputs[1];
  if (IsEmpty(shape) && shape.has_bias && shape.y_is_blocked) return UnsupportedTypes(spec);
  if (IsEmpty(shape)) return KernelFactory(MakeEmpty).PlanKernel(spec);
  std::unique_ptr<Convolution> convolution = ChooseConvolution(shape);
  if (convolution == nullptr) return UnsupportedTypes(spec);
  return PlanKernel(std::make_shared<ConvolutionCall>(std::move(convolution), shape.has_bias));
}

// conv_integer.
class ByteConvolutionCall {
 public:
  ByteConvolutionCall(const KernelSpec& spec, const ConvolutionShape& shape,
                      std::unique_ptr<Convolution> convolution)
      : operands_(spec),
        sums_(shape, operands_.may_have_zeros_of_b()),
        convolution_(std::move(convolution)) {}

  KernelMemory memory() const {
    KernelMemory memory = convolution_->memory();
    memory.own += operands_.own_bytes() + sums_.own_bytes();
    return memory;
  }
  void Allocate() {
    operands_.Allocate();
    sums_.Allocate();
    convolution_->Allocate();
  }
  void operator()(const KernelRun& run) {
    const bool has_changed = operands_.Read(run);
    if (has_changed) sums_.Read(operands_.b());
    convolution_->Run({.first = operands_.a(),
                       .second = operands_.b(),
                       .result = run.outputs[0],
                       .has_same_second = !has_changed});
    sums_.Subtract(operands_, Output<int32_t>(run, 0));
  }

 private:
  ByteOperands operands_;
  WindowSums sums_;
  const std::unique_ptr<Convolution> convolution_;
};

absl::StatusOr<PlannedKernel> PlanBytes(const KernelSpec& any_spec) {
  if (!HasByteProducts()) return UnsupportedTypes(any_spec);
  BRAID_ASSIGN_OR_RETURN(const PlainSpec plain, PlainSpecOf(any_spec));
  BRAID_ASSIGN_OR_RETURN(ConvolutionShape shape, ShapeOf(plain.spec, Side::kOutput));
  shape.dtype = DType::kU8;
  shape.wide_result = true;
  shape.has_bias = false;
  shape.x_is_blocked = plain.inputs[0];
  shape.y_is_blocked = plain.outputs[0];
  if (plain.any()) shape.channel_block = plain.block;
  const bool has_layout = !plain.any() || plain.block == compiler::kWholeBlock;
  if (IsEmpty(shape) || !has_layout) return UnsupportedTypes(any_spec);
  std::unique_ptr<Convolution> convolution = ChooseByteConvolution(shape);
  if (convolution == nullptr) return UnsupportedTypes(any_spec);
  return PlanKernel(
      std::make_shared<ByteConvolutionCall>(plain.spec, shape, std::move(convolution)));
}

// Narrow types run as they are where oneDNN has instructions for them, else in f32; likewise blocks
// of channels, else plain.
KernelFactory ForSide(Side side) {
  const KernelFactory factory = [side](const KernelSpec& spec) { return PlanSide(spec, side); };
  return FirstSupported(
      {factory, Widened(factory), Unblocked(factory), Unblocked(Widened(factory))});
}

}  // namespace

int64_t ConvolutionShape::x_elements() const { return groups * in * Product(space); }
int64_t ConvolutionShape::y_elements() const { return groups * out * Product(windows); }
int64_t ConvolutionShape::w_elements() const {
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  return groups * out * in * taps;
}

SpatialAxes::SpatialAxes(const ConvolutionShape& shape) {
  const size_t missing = kSpatialAxes - shape.space.size();
  for (size_t i = 0; i < shape.space.size(); ++i) {
    size[missing + i] = shape.space[i];
    windows[missing + i] = shape.windows[i];
    axis[missing + i] = shape.axes[i];
  }
}

// Whether there are enough windows for the time that the weights' way into Winograd's form takes.
bool WinogradPays(const ConvolutionShape& shape, const SpatialAxes& axes) {
  constexpr int64_t kTile = 4, kTiles = 64;
  int64_t tiles = shape.batch;
  for (int axis = 0; axis < kSpatialAxes; ++axis) {
    if (axes.axis[axis].kernel > 1) tiles *= (axes.windows[axis] + kTile - 1) / kTile;
  }
  return tiles >= kTiles;
}

std::unique_ptr<Convolution> ChooseConvolution(const ConvolutionShape& shape) {
  if (auto convolution = ChooseTileConvolution(shape)) return convolution;
  // Measured: 1.25 to 1.6 x oneDNN with 16 windows, 1.15 x with 49, as fast with 64.
  constexpr int64_t kFewWindows = 49;
  const SpatialAxes axes(shape);
  if (shape.by_winograd && WinogradPays(shape, axes)) {
    if (auto convolution = ChooseWinogradConvolution(shape)) return convolution;
  }
  if (axes.num_windows() <= kFewWindows && axes.num_taps() > 1) {
    if (auto convolution = ChooseLaneWeightGradient(shape)) return convolution;
  }
  if (shape.dtype != DType::kF64) {
    if (auto convolution = ChooseDnnlConvolution(shape)) return convolution;
  }
  const bool has_other = shape.dtype != DType::kBF16 && !shape.x_is_blocked && !shape.y_is_blocked;
  return has_other ? ChooseGemmConvolution(shape) : nullptr;
}

absl::Status RegisterConvolutionKernels(KernelRegistry& registry) {
  BRAID_RETURN_IF_ERROR(registry.Register("conv", ForSide(Side::kOutput)));
  const KernelFactory by_floats =
      ByFloatingKernels(ForSide(Side::kOutput), [](const KernelSpec&) { return 0; });
  BRAID_RETURN_IF_ERROR(registry.Register("conv_integer", FirstSupported({PlanBytes, by_floats})));
  BRAID_RETURN_IF_ERROR(registry.Register("conv_input_grad", ForSide(Side::kInput)));
  return registry.Register("conv_weight_grad", ForSide(Side::kWeights));
}

}  // namespace braid::cpu
