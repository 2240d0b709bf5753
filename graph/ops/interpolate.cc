// Resizing one axis by interpolation: each element of the result is a weighted sum of a few of x's
// elements along the axis. Several axes are resized one after another. The coordinates and kernels
// are those of ONNX's Resize.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/resize.h"
#include "graph/ops/shapes.h"
#include "graph/ops/window.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<ResizeAttrs> ResizeOf(const Attrs& attrs) {
  ResizeAttrs resize;
  const auto choose = [&](const char* name, std::initializer_list<const char*> choices, auto set) {
    int index = 0;
    std::string list;
    for (const char* choice : choices) {
      if (attrs.String(name) == choice) {
        set(index);
        return absl::OkStatus();
      }
      absl::StrAppend(&list, list.empty() ? "" : ", ", choice);
      ++index;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is \"", attrs.String(name), "\"; one of ", list, " is needed"));
  };
  BRAID_RETURN_IF_ERROR(choose("mode", {"nearest", "linear", "cubic"},
                               [&](int i) { resize.mode = static_cast<ResizeMode>(i); }));
  BRAID_RETURN_IF_ERROR(
      choose("coordinates",
             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"},
             [&](int i) { resize.coordinates = static_cast<ResizeCoordinates>(i); }));
  BRAID_RETURN_IF_ERROR(choose("rounding",
                               {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"},
                               [&](int i) { resize.rounding = static_cast<ResizeRounding>(i); }));
  resize.scale = attrs.Double("scale");
  resize.cubic = attrs.Double("cubic");
  resize.begin = attrs.Double("begin");
  resize.end = attrs.Double("end");
  resize.outside = attrs.Double("outside");
  resize.excludes_outside = Flag(attrs, "exclude_outside");
  if (!(resize.scale >= 1e-9 && resize.scale <= 1e9)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale is ", resize.scale, "; a number from 1e-9 to 1e9 is needed"));
  }
  for (double number : {resize.begin, resize.end, resize.cubic}) {
    if (std::abs(number) <= 1e6) continue;
    return absl::InvalidArgumentError(absl::StrCat("begin is ", resize.begin, ", end is ",
                                                   resize.end, ", cubic is ", resize.cubic,
                                                   "; numbers from -1e6 to 1e6 are needed"));
  }
  return resize;
}

namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// The result has attribute `length` on the axis. `is_gradient`: then it is x, else y.
Types InferResize(const OpContext& ctx, bool is_gradient) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  const TensorType& in = ctx.inputs[0];
  const int64_t axis = ctx.attrs.Int("axis"), length = ctx.attrs.Int("length");
  BRAID_RETURN_IF_ERROR(CheckAxis(axis, in.shape.rank()));
  BRAID_ASSIGN_OR_RETURN(const ResizeAttrs resize, ResizeOf(ctx.attrs));
  const bool only_copies = !is_gradient && resize.mode == ResizeMode::kNearest &&
                           resize.coordinates != ResizeCoordinates::kCrop;
  if (!only_copies) BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  TensorType out = in;
  out.shape[static_cast<int>(axis)] = length;
  const int64_t x_length = is_gradient ? length : in.shape[static_cast<int>(axis)];
  const int64_t y_length = is_gradient ? in.shape[static_cast<int>(axis)] : length;
  if (length < 0 || (x_length == 0 && y_length > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a is ", in.ToString(), ", axis is ", axis,
                                                   ", length is ", length,
                                                   "; nothing can be made of no elements"));
  }
  BRAID_RETURN_IF_ERROR(CheckElements(in.shape));
  BRAID_RETURN_IF_ERROR(CheckElements(out.shape));
  return std::vector<TensorType>{std::move(out)};
}

// A constant outside makes it affine, not linear.
bool IsLinear(const OpContext& ctx) {
  return ctx.attrs.String("coordinates") != "tf_crop_and_resize" ||
         ctx.attrs.Double("outside") == 0;
}

Attrs WithLength(const Attrs& attrs, int64_t length) {
  Attrs result = attrs;
  result.Set("length", length);
  return result;
}

Attrs SampleAttrs(int64_t axis, int64_t length, std::string mode, std::string coordinates) {
  return {{"axis", axis},
          {"length", length},
          {"mode", std::move(mode)},
          {"coordinates", std::move(coordinates)},
          {"rounding", std::string("floor")},
          {"scale", 1.6},
          {"cubic", -0.75},
          {"begin", 0.1},
          {"end", 1.2},
          {"outside", 0.5},
          {"exclude_outside", false}};
}

OpDef WithSamples(OpDef def) {
  const auto sample = [&](Shape shape, Attrs attrs) {
    def.Sample({.inputs = {{DType::kF32, std::move(shape)}}, .attrs = std::move(attrs)});
  };
  sample({2, 3, 5}, SampleAttrs(2, 8, "linear", "half_pixel"));
  sample({2, 5, 3}, SampleAttrs(1, 3, "linear", "align_corners"));
  sample({2, 5, 3}, SampleAttrs(1, 9, "nearest", "asymmetric"));
  sample({3, 4, 5}, SampleAttrs(2, 8, "nearest", "tf_half_pixel_for_nn"));
  sample({5, 3}, SampleAttrs(0, 8, "cubic", "half_pixel"));
  Attrs cubic = SampleAttrs(1, 6, "cubic", "half_pixel_symmetric");
  cubic.Set("exclude_outside", true);
  sample({3, 4}, std::move(cubic));
  sample({3, 5}, SampleAttrs(1, 6, "linear", "tf_crop_and_resize"));
  sample({3, 5}, SampleAttrs(1, 1, "linear", "pytorch_half_pixel"));
  return def;
}

OpDef ResizeOp() {
  return WithSamples(
      OpDef("resize_axis")
          .Infer([](const OpContext& ctx) { return InferResize(ctx, /*is_gradient=*/false); })
          .Rule("A{axis}_B->A_B")
          .Linear({0}, IsLinear)
          .Gradient([](const Context& c) {
            const int axis = static_cast<int>(c.op.attrs.Int("axis"));
            return Gradients{Apply("resize_axis_grad", {c.output_gradients[0]},
                                   WithLength(c.op.attrs, c.inputs[0].shape()[axis]))};
          })
          .Flops([](const OpContext& ctx) { return 4.0 * ctx.outputs[0].shape.num_elements(); }));
}

OpDef ResizeGradientOp() {
  return WithSamples(
      OpDef("resize_axis_grad")
          .Infer([](const OpContext& ctx) { return InferResize(ctx, /*is_gradient=*/true); })
          .Rule("A{axis}_B->A_B")
          .Linear({0})
          .Gradient([](const Context& c) {
            const int axis = static_cast<int>(c.op.attrs.Int("axis"));
            Attrs attrs = WithLength(c.op.attrs, c.inputs[0].shape()[axis]);
            attrs.Set("outside", 0.0);
            return Gradients{Apply("resize_axis", {c.output_gradients[0]}, std::move(attrs))};
          })
          .Flops([](const OpContext& ctx) { return 4.0 * ctx.inputs[0].shape.num_elements(); }));
}

}  // namespace

std::vector<OpDef> InterpolateOps() { return {ResizeOp(), ResizeGradientOp()}; }

}  // namespace braid
