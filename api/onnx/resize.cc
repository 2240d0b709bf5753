// Resizing by interpolation.
#include "graph/ops/resize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/sample.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"
#include "runtime/kernels/functions/resize_taps.h"

namespace braid::onnx {
namespace {

absl::StatusOr<std::string> ModeOf(const NodeView& n) {
  const std::string mode = n.Text("mode", "nearest");
  if (mode == "nearest" || mode == "linear" || mode == "cubic") return mode;
  return Wrong(absl::StrCat("mode is ", mode));
}

// Of all axes; x / scale, rounded down.
absl::StatusOr<Tensors> TranslateUpsample(const NodeView& n) {
  InterpolateOptions options = {.coordinates = "asymmetric", .rounding = "floor"};
  BRAID_ASSIGN_OR_RETURN(options.mode, ModeOf(n));
  if (n.HasInput(1)) {
    BRAID_ASSIGN_OR_RETURN(options.scales, n.KnownFloats(1));
  } else {
    options.scales = n.Floats("scales").value_or(std::vector<double>());
  }
  options.axes.resize(n.rank());
  std::iota(options.axes.begin(), options.axes.end(), 0);
  return Tensors{Interpolate(n.in(0), std::move(options))};
}

// A list that an empty tensor leaves out.
absl::StatusOr<std::vector<double>> NumbersOf(const NodeView& n, int input) {
  if (!n.HasInput(input)) return std::vector<double>();
  return n.KnownFloats(input);
}

// Sizes that keep x's proportions: the largest within the wanted ones, or the smallest around them.
absl::Status KeepProportions(const NodeView& n, InterpolateOptions& options) {
  const std::string policy = n.Text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || options.sizes.empty()) return absl::OkStatus();
  if (policy != "not_larger" && policy != "not_smaller") {
    return Wrong(absl::StrCat("keep_aspect_ratio_policy is ", policy));
  }
  const Shape x = n.shape();
  if (options.sizes.size() != options.axes.size()) return Wrong("there is not a size per axis");
  std::vector<double> scales;
  for (size_t i = 0; i < options.axes.size(); ++i) {
    const auto size = static_cast<double>(x[static_cast<int>(options.axes[i])]);
    scales.push_back(static_cast<double>(options.sizes[i]) / size);
  }
  const double scale = policy == "not_larger" ? *std::min_element(scales.begin(), scales.end())
                                              : *std::max_element(scales.begin(), scales.end());
  if (!(scale > 0 && scale < 1e6)) return Wrong(absl::StrCat("the scale would be ", scale));
  for (size_t i = 0; i < options.axes.size(); ++i) {
    const auto size = static_cast<double>(x[static_cast<int>(options.axes[i])]);
    options.sizes[i] = static_cast<int64_t>(std::floor(scale * size + 0.5));
  }
  options.scales.assign(options.axes.size(), scale);
  return absl::OkStatus();
}

// The elements that each element of a smaller axis is the weighted sum of: [length, taps].
struct WideTaps {
  int64_t taps = 0;
  Ints index, weight_bits;  // weights as a literal has them
};

// The kernel is as many times wider as the axis becomes shorter, so that every element counts.
WideTaps WideTapsOf(const ResizeAttrs& resize, int64_t size, int64_t length) {
  const bool is_linear = resize.mode == ResizeMode::kLinear;
  const double reach = (is_linear ? 1 : 2) / resize.scale;
  WideTaps wide = {.taps = static_cast<int64_t>(std::ceil(2 * reach)) + 1};
  for (int64_t i = 0; i < length; ++i) {
    const double x = ResizeCoordinate<double>(
        resize, static_cast<double>(i), static_cast<double>(size), static_cast<double>(length));
    const auto first = static_cast<int64_t>(std::ceil(x - reach));
    std::vector<double> weights;
    double all = 0, inside = 0;
    for (int64_t k = 0; k < wide.taps; ++k) {
      const double distance = std::abs(static_cast<double>(first + k) - x) * resize.scale;
      weights.push_back(is_linear ? std::max(0.0, 1 - distance)
                                  : CubicWeight<double>(resize.cubic, distance));
      all += weights.back();
      const bool is_inside = first + k >= 0 && first + k < size;
      if (is_inside) inside += weights.back();
      if (!is_inside && resize.excludes_outside) weights.back() = 0;
      wide.index.push_back(std::clamp<int64_t>(first + k, 0, size - 1));
    }
    const double sum = resize.excludes_outside && inside != 0 ? inside : all;
    for (double weight : weights) wide.weight_bits.push_back(std::bit_cast<int64_t>(weight / sum));
  }
  return wide;
}

// One axis made smaller, by options without lists.
absl::StatusOr<Tensor> Shrunk(Tensor x, int64_t axis, int64_t length, double scale,
                              const InterpolateOptions& options) {
  BRAID_ASSIGN_OR_RETURN(const ResizeAttrs resize,
                         ResizeOf({{"mode", options.mode},
                                   {"coordinates", options.coordinates},
                                   {"rounding", options.rounding},
                                   {"scale", scale},
                                   {"cubic", options.cubic},
                                   {"begin", 0.0},
                                   {"end", 1.0},
                                   {"outside", 0.0},
                                   {"exclude_outside", options.exclude_outside}}));
  const Shape shape = x.shape();
  const int64_t size = shape[static_cast<int>(axis)];
  if (size < 1 || 4 / scale > 1e5 || length * (4 / scale + 2) > kMaxLiteralElements) {
    return Lacking(absl::StrCat("antialias from ", size, " to ", length, " elements"));
  }
  const WideTaps wide = WideTapsOf(resize, size, length);
  Ints dims(shape.rank() + 1, 1);
  dims[axis] = length, dims[axis + 1] = wide.taps;
  LogicalGraph& graph = *x.graph();
  const Tensor index = Literal(graph, {DType::kI64, {length, wide.taps}}, wide.index);
  const Tensor weights = Literal(graph, {x.dtype(), Shape(dims)}, wide.weight_bits);
  const Tensor parts = Mul(Gather(x, index, {.axis = axis}), weights);
  return ReduceSum(parts, {.axes = {axis + 1}});
}

// Axes that become smaller by kernels that are wider, the others as always.
absl::StatusOr<Tensors> Antialiased(const NodeView& n, const InterpolateOptions& options) {
  if (options.mode == "nearest" || options.coordinates == "tf_crop_and_resize") {
    return Lacking("antialias of nearest elements, and with tf_crop_and_resize");
  }
  if (!IsFloating(n.dtype())) return Lacking("antialias of integers");
  const size_t axes = options.axes.size();
  if (std::max(options.sizes.size(), options.scales.size()) != axes) {
    return Wrong("there is not a size or a scale per axis");
  }
  Tensor x = Cast(n.in(0), WideEnough(n.dtype()));
  for (size_t i = 0; i < axes; ++i) {
    if (!x.valid()) return n.graph().status();
    const auto size = static_cast<double>(x.shape()[static_cast<int>(options.axes[i])]);
    InterpolateOptions one = options;
    one.axes = {options.axes[i]};
    if (!options.sizes.empty()) one.sizes = {options.sizes[i]};
    if (!options.scales.empty()) one.scales = {options.scales[i]};
    const double scale =
        options.scales.empty() ? static_cast<double>(options.sizes[i]) / size : options.scales[i];
    // In f32, as Interpolate.
    const int64_t length = options.sizes.empty()
                               ? static_cast<int64_t>(std::floor(static_cast<float>(size * scale)))
                               : options.sizes[i];
    if (scale > 0 && scale < 1) {
      BRAID_ASSIGN_OR_RETURN(x, Shrunk(x, options.axes[i], length, scale, options));
    } else {
      x = Interpolate(x, std::move(one));
    }
  }
  return Tensors{Cast(x, n.dtype())};
}

absl::StatusOr<Tensors> TranslateResize(const NodeView& n) {
  if (n.opset() < 11) return TranslateUpsample(n);
  InterpolateOptions options;
  BRAID_ASSIGN_OR_RETURN(options.mode, ModeOf(n));
  options.coordinates = n.Text("coordinate_transformation_mode", "half_pixel");
  options.rounding = n.Text("nearest_mode", "round_prefer_floor");
  options.cubic = n.Float("cubic_coeff_a", -0.75);
  options.exclude_outside = n.Flag("exclude_outside");
  options.outside = n.Float("extrapolation_value", 0);
  options.axes.resize(n.rank());
  std::iota(options.axes.begin(), options.axes.end(), 0);
  if (const auto axes = n.List("axes")) {
    BRAID_ASSIGN_OR_RETURN(options.axes, NormalAxes(*axes, n.rank()));
  }
  BRAID_ASSIGN_OR_RETURN(options.scales, NumbersOf(n, 2));
  if (n.HasInput(3)) {
    BRAID_ASSIGN_OR_RETURN(options.sizes, n.KnownInts(3));
  }
  if (!options.scales.empty() && !options.sizes.empty()) {
    return Wrong("it has scales and sizes; one of them is needed");
  }
  BRAID_RETURN_IF_ERROR(KeepProportions(n, options));
  if (options.coordinates == "tf_crop_and_resize") {
    BRAID_ASSIGN_OR_RETURN(const std::vector<double> region, NumbersOf(n, 1));
    if (region.size() != 2 * options.axes.size()) return Wrong("roi needs two numbers per axis");
    options.begin.assign(region.begin(), region.begin() + options.axes.size());
    options.end.assign(region.begin() + options.axes.size(), region.end());
  }
  if (n.Flag("antialias")) return Antialiased(n, options);
  return Tensors{Interpolate(n.in(0), std::move(options))};
}

}  // namespace

void AddResize(Translators& all) {
  all.Add("Upsample", {1, 2}, TranslateUpsample);
  all.Add("Resize", {1, 4}, TranslateResize);
}

}  // namespace braid::onnx
