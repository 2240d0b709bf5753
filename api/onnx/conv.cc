// Convolution and pooling.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/quantize.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// [o] or a scalar as [o, 1...] or [1...], so that it broadcasts onto `rank` axes from `axis` on.
Tensor Along(Tensor numbers, int axis, int rank) {
  Ints dims(rank - axis, 1);
  dims[0] = numbers.shape().num_elements();
  return Reshape(numbers, Shape(dims));
}

// What convolution and pooling nodes say of their windows.
struct Windows {
  Ints strides, dilations, begin, end;
  SamePadding same = SamePadding::kNone;
};

// Products of these with sizes of tensors fit into 64 bits.
absl::Status CheckSmall(const char* name, const Ints& numbers) {
  constexpr int64_t kMostOfWindow = int64_t{1} << 21;
  for (int64_t number : numbers) {
    if (number >= -kMostOfWindow && number <= kMostOfWindow) continue;
    return Wrong(absl::StrCat(name, " has ", number, "; at most ", kMostOfWindow, " is possible"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Windows> WindowsOf(const NodeView& n) {
  if (n.rank() < 3 || n.rank() > 5) return Lacking("other than 1 to 3 axes of space");
  const size_t axes = n.rank() - 2;
  Windows windows;
  windows.strides = n.List("strides").value_or(Ints(axes, 1));
  windows.dilations = n.List("dilations").value_or(Ints(axes, 1));
  const Ints pads = n.List("pads").value_or(Ints(2 * axes, 0));
  if (pads.size() != 2 * axes) {
    return Wrong(absl::StrCat("pads has ", pads.size(), " numbers; ", 2 * axes, " are needed"));
  }
  BRAID_RETURN_IF_ERROR(CheckSmall("strides", windows.strides));
  BRAID_RETURN_IF_ERROR(CheckSmall("dilations", windows.dilations));
  BRAID_RETURN_IF_ERROR(CheckSmall("pads", pads));
  windows.begin.assign(pads.begin(), pads.begin() + axes);
  windows.end.assign(pads.begin() + axes, pads.end());
  const std::string mode = n.Text("auto_pad", "NOTSET");
  if (mode == "SAME_UPPER") windows.same = SamePadding::kUpper;
  if (mode == "SAME_LOWER") windows.same = SamePadding::kLower;
  if (windows.same == SamePadding::kNone && mode != "NOTSET" && mode != "VALID") {
    return Wrong(absl::StrCat("auto_pad is ", mode));
  }
  return windows;
}

absl::StatusOr<ConvOptions> ConvOptionsOf(const NodeView& n, const Shape& w) {
  BRAID_ASSIGN_OR_RETURN(const Windows windows, WindowsOf(n));
  const std::optional<Ints> kernel = n.List("kernel_shape");
  if (w.rank() != n.rank() || (kernel && *kernel != SpaceOf(w))) {
    return Wrong(absl::StrCat("kernel_shape does not fit the weights ", w.ToString()));
  }
  return ConvOptions{.strides = windows.strides,
                     .dilations = windows.dilations,
                     .padding = windows.begin,
                     .padding_end = windows.end,
                     .same = windows.same,
                     .groups = n.Int("group", 1)};
}

absl::Status CheckBias(const NodeView& n, int input, int64_t outputs) {
  if (n.shape(input) == Shape({outputs})) return absl::OkStatus();
  return Wrong(absl::StrCat("input ", input, ", the bias, is ", n.type(input).ToString(), "; ",
                            outputs, " numbers are needed, one for each output"));
}

absl::StatusOr<Tensors> TranslateConv(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const ConvOptions options, ConvOptionsOf(n, n.shape(1)));
  const Tensor x = n.in(0), w = n.in(1), bias = n.in(2);
  if (const auto factors = FactorsOf(x, w, /*axis=*/0)) {
    const Tensor sum = ConvInteger(factors->a, factors->b, options);
    const Tensor y = RealsOf(sum, *factors, n.rank() - 2);
    if (bias.valid()) BRAID_RETURN_IF_ERROR(CheckBias(n, 2, w.shape()[0]));
    return Tensors{bias.valid() ? Add(y, Along(bias, 1, n.rank())) : y};
  }
  return Tensors{bias.valid() ? Conv(x, w, bias, options) : Conv(x, w, options)};
}

absl::StatusOr<Tensors> TranslateConvTranspose(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(Windows windows, WindowsOf(n));
  const Ints sizes = SpaceOf(n.shape()), kernel = SpaceOf(n.shape(1));
  const std::optional<Ints> kernel_shape = n.List("kernel_shape");
  const size_t axes = sizes.size();
  Ints extra = n.List("output_padding").value_or(Ints(axes, 0));
  std::optional<Ints> output = n.List("output_shape");
  const bool fits = n.rank(1) == n.rank() && (!kernel_shape || *kernel_shape == kernel) &&
                    windows.strides.size() == axes && windows.dilations.size() == axes &&
                    extra.size() == axes && (!output || output->size() >= axes);
  if (!fits) return Wrong("the attributes do not fit the axes of space");
  BRAID_RETURN_IF_ERROR(CheckSmall("output_padding", extra));
  BRAID_RETURN_IF_ERROR(CheckSmall("output_shape", output.value_or(Ints())));
  if (!output && windows.same != SamePadding::kNone) {
    output.emplace();
    for (size_t i = 0; i < axes; ++i) output->push_back(sizes[i] * windows.strides[i]);
  }
  for (size_t i = 0; output && i < axes; ++i) {
    // What the wanted size leaves over is padding; what it lacks comes behind.
    const int64_t wanted = (*output)[output->size() - axes + i];
    const int64_t reach =
        (sizes[i] - 1) * windows.strides[i] + windows.dilations[i] * (kernel[i] - 1) + 1 + extra[i];
    const int64_t total = std::max<int64_t>(0, reach - wanted);
    extra[i] += std::max<int64_t>(0, wanted - reach);
    windows.end[i] = windows.same == SamePadding::kUpper ? total - total / 2 : total / 2;
    windows.begin[i] = total - windows.end[i];
  }
  const ConvTransposeOptions options = {.strides = windows.strides,
                                        .dilations = windows.dilations,
                                        .padding = windows.begin,
                                        .padding_end = windows.end,
                                        .output_padding = extra,
                                        .groups = n.Int("group", 1)};
  if (!n.HasInput(2)) return Tensors{ConvTranspose(n.in(0), n.in(1), options)};
  return Tensors{ConvTranspose(n.in(0), n.in(1), n.in(2), options)};
}

// The convolution of two inputs less their zero points, in i32.
absl::StatusOr<Tensor> ByteConv(const NodeView& n, int x, int w, int zero_of_x, int zero_of_w) {
  BRAID_ASSIGN_OR_RETURN(const ConvOptions options, ConvOptionsOf(n, n.shape(w)));
  BRAID_ASSIGN_OR_RETURN(const ByteOperand of_x, ByteOperandOf(n, x, zero_of_x));
  BRAID_ASSIGN_OR_RETURN(const ByteOperand of_w, ByteOperandOf(n, w, zero_of_w));
  return ConvInteger(of_x, of_w, options);
}

absl::StatusOr<Tensors> TranslateConvInteger(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Tensor y, ByteConv(n, 0, 1, 2, 3));
  return Tensors{y};
}

// x, its scale and zero point, w and its, y's, and a bias in units of scale(x) * scale(w).
absl::StatusOr<Tensors> TranslateQLinearConv(const NodeView& n) {
  BRAID_RETURN_IF_ERROR(CheckQuantized(n.dtype(7)));
  BRAID_ASSIGN_OR_RETURN(Tensor y, ByteConv(n, 0, 3, 2, 5));
  const auto scale = [&](int i) { return Along(Cast(n.in(i), DType::kF32), 1, n.rank()); };
  if (n.HasInput(8)) {
    BRAID_RETURN_IF_ERROR(CheckBias(n, 8, n.shape(3)[0]));
    y = Add(y, Along(n.in(8), 1, n.rank()));
  }
  y = QuotientOf(y, Div(Mul(scale(1), scale(4)), scale(6)));
  return Tensors{QuantizedQuotient(y, Reshape(n.in(7), Shape()), {.dtype = n.dtype(7)})};
}

absl::StatusOr<PoolOptions> PoolOptionsOf(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Windows windows, WindowsOf(n));
  const std::optional<Ints> kernel = n.List("kernel_shape");
  if (!kernel) return Wrong("kernel_shape is missing");
  return PoolOptions{.kernel = *kernel,
                     .strides = windows.strides,
                     .dilations = windows.dilations,
                     .padding = windows.begin,
                     .padding_end = windows.end,
                     .same = windows.same,
                     .ceil_mode = n.Flag("ceil_mode")};
}

// Positions in the whole of x, from those in each channel's plane; by columns if `by_columns`.
absl::StatusOr<Tensor> WholePositions(Tensor positions, const Shape& x, bool by_columns) {
  LogicalGraph& graph = *positions.graph();
  const auto number = [&](int64_t value) {
    return Constant(graph, static_cast<double>(value), {.dtype = DType::kI64});
  };
  const int64_t plane = Shape(SpaceOf(x)).num_elements();
  if (by_columns) {
    if (x.rank() != 4) return Lacking("storage_order 1 of other than two axes of space");
    const Tensor row = Div(positions, number(x[3]));
    const Tensor column = Sub(positions, Mul(row, number(x[3])));
    positions = Add(Mul(column, number(x[2])), row);
  }
  const Tensor planes = Iota(graph, {DType::kI64, {x[0] * x[1]}});
  Ints dims(x.rank(), 1);
  dims[0] = x[0], dims[1] = x[1];
  return Add(positions, Reshape(Mul(planes, number(plane)), Shape(dims)));
}

absl::StatusOr<Tensors> TranslateMaxPool(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const PoolOptions options, PoolOptionsOf(n));
  const bool by_columns = n.Flag("storage_order");
  const DType dtype = n.dtype();
  // Bytes are exact in f32.
  if (!IsFloating(dtype) && dtype != DType::kU8) return Lacking("integers of more than a byte");
  const Tensor x = IsFloating(dtype) ? n.in(0) : Cast(n.in(0), DType::kF32);
  if (!n.HasOutput(1)) return Tensors{Cast(MaxPool(x, options), dtype)};
  const auto [y, positions] = MaxPoolWithIndices(x, options);
  if (!positions.valid()) return n.graph().status();
  BRAID_ASSIGN_OR_RETURN(const Tensor indices, WholePositions(positions, n.shape(), by_columns));
  return Tensors{Cast(y, dtype), indices};
}

absl::StatusOr<Tensors> TranslateAveragePool(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(PoolOptions options, PoolOptionsOf(n));
  options.count_include_pad = n.Flag("count_include_pad");
  return Tensors{AvgPool(n.in(0), options)};
}

absl::StatusOr<Tensors> TranslateLpPool(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const PoolOptions options, PoolOptionsOf(n));
  return Tensors{LpPool(n.in(0), static_cast<double>(n.Int("p", 2)), options)};
}

absl::StatusOr<Tensors> TranslateGlobalLpPool(const NodeView& n) {
  if (n.rank() < 3 || n.rank() > 5) return Lacking("other than 1 to 3 axes of space");
  return Tensors{LpPool(n.in(0), static_cast<double>(n.Int("p", 2)),
                        {.kernel = SpaceOf(n.shape()), .strides = {1}})};
}

}  // namespace

void AddConv(Translators& all) {
  all.Add("Conv", {2, 3}, TranslateConv);
  all.Add("ConvTranspose", {2, 3}, TranslateConvTranspose);
  all.Add("ConvInteger", {2, 4}, TranslateConvInteger);
  all.Add("QLinearConv", {8, 9}, TranslateQLinearConv);
  all.Add("MaxPool", {}, TranslateMaxPool);
  all.Add("AveragePool", {}, TranslateAveragePool);
  all.Add("LpPool", {}, TranslateLpPool);
  all.Add("GlobalAveragePool", {}, Unary(GlobalAvgPool));
  all.Add("GlobalMaxPool", {}, Unary(GlobalMaxPool));
  all.Add("GlobalLpPool", {}, TranslateGlobalLpPool);
}

}  // namespace braid::onnx
