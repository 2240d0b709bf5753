// Resizing by interpolation.
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

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

absl::StatusOr<Tensors> TranslateResize(const NodeView& n) {
  if (n.opset() < 11) return TranslateUpsample(n);
  InterpolateOptions options;
  BRAID_ASSIGN_OR_RETURN(options.mode, ModeOf(n));
  options.coordinates = n.Text("coordinate_transformation_mode", "half_pixel");
  options.rounding = n.Text("nearest_mode", "round_prefer_floor");
  options.cubic = n.Float("cubic_coeff_a", -0.75);
  options.exclude_outside = n.Flag("exclude_outside");
  options.outside = n.Float("extrapolation_value", 0);
  if (n.Flag("antialias")) return Lacking("antialias");
  if (n.Text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    return Lacking("keep_aspect_ratio_policy other than stretch");
  }
  options.axes.resize(n.rank());
  std::iota(options.axes.begin(), options.axes.end(), 0);
  if (const auto axes = n.List("axes")) {
    BRAID_ASSIGN_OR_RETURN(options.axes, NormalAxes(*axes, n.rank()));
  }
  BRAID_ASSIGN_OR_RETURN(options.scales, NumbersOf(n, 2));
  if (n.HasInput(3)) {
    BRAID_ASSIGN_OR_RETURN(options.sizes, n.KnownInts(3));
  }
  if (options.coordinates == "tf_crop_and_resize") {
    BRAID_ASSIGN_OR_RETURN(const std::vector<double> region, NumbersOf(n, 1));
    if (region.size() != 2 * options.axes.size()) return Wrong("roi needs two numbers per axis");
    options.begin.assign(region.begin(), region.begin() + options.axes.size());
    options.end.assign(region.begin() + options.axes.size(), region.end());
  }
  return Tensors{Interpolate(n.in(0), std::move(options))};
}

}  // namespace

void AddResize(Translators& all) {
  all.Add("Upsample", {1, 2}, TranslateUpsample);
  all.Add("Resize", {1, 4}, TranslateResize);
}

}  // namespace braid::onnx
