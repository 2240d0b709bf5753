// Convolution, and what it is transposed and differentiated into. The three operators are one
// trilinear form seen from its three sides, so each one's gradients are the other two. And
// convolution of bytes.
//
// Space is not split over devices: a window would reach into the neighbours' parts.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/product_type.h"
#include "graph/ops/shapes.h"
#include "graph/ops/window.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

// The types of the three sides, from those of two and the attributes: x [n, c, space...],
// w [o, c / groups, kernel...], y [n, o, windows...].
struct Sides {
  Shape x, w, y;
};

absl::Status CheckRanks(const OpContext& ctx) {
  const int rank = ctx.inputs[0].shape.rank();
  if (rank < 3 || rank > 5 || ctx.inputs[1].shape.rank() != rank) {
    return Disagree(ctx, "both need 3, 4 or 5 axes: two and one for each of 1 to 3 of space");
  }
  for (int i = 0; i < 2; ++i) BRAID_RETURN_IF_ERROR(CheckElements(ctx.inputs[i].shape));
  const int64_t groups = ctx.attrs.Int("groups");
  if (groups < 1) return Disagree(ctx, absl::StrCat("groups is ", groups, "; 1 or more is needed"));
  return absl::OkStatus();
}

absl::Status CheckOperands(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
  return CheckRanks(ctx);
}

// Whether y follows from x and w: channels fit the groups, windows fit space.
absl::Status CheckSides(const OpContext& ctx, const Sides& sides) {
  const int64_t groups = ctx.attrs.Int("groups");
  if (sides.x[1] % groups != 0 || sides.x[1] / groups != sides.w[1] || sides.w[0] % groups != 0) {
    return Disagree(ctx, absl::StrCat("groups is ", groups, "; x has ", sides.x[1],
                                      " channels, the weights ", sides.w[1], " for each group and ",
                                      sides.w[0], " outputs, of which each group has as many"));
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<WindowAxis> windows,
                         WindowsOf(ctx.attrs, SpaceOf(sides.w)));
  for (size_t i = 0; i < windows.size(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    absl::StatusOr<int64_t> count = CountWindows(sides.x[axis], windows[i]);
    if (!count.ok()) return Disagree(ctx, std::string(count.status().message()));
    if (*count == sides.y[axis]) continue;
    return Disagree(ctx, absl::StrCat("axis ", axis, " of ", sides.x.ToString(), " has ", *count,
                                      " windows, ", sides.y.ToString(), " says ", sides.y[axis]));
  }
  BRAID_RETURN_IF_ERROR(CheckElements(sides.x));
  BRAID_RETURN_IF_ERROR(CheckElements(sides.w));
  return CheckElements(sides.y);
}

// An attribute that gives the dims behind the first two of what is computed.
absl::StatusOr<Ints> SpaceAttr(const OpContext& ctx, const char* name) {
  const Ints& space = ctx.attrs.Ints(name);
  if (static_cast<int>(space.size()) + 2 == ctx.inputs[0].shape.rank()) return space;
  return Disagree(ctx, absl::StrCat(name, " has ", space.size(), " dims; one for each axis of ",
                                    "space is needed"));
}

// y's, of operands whose ranks are right.
absl::StatusOr<Shape> OutputShape(const OpContext& ctx) {
  const Shape &x = ctx.inputs[0].shape, &w = ctx.inputs[1].shape;
  BRAID_ASSIGN_OR_RETURN(const std::vector<WindowAxis> windows, WindowsOf(ctx.attrs, SpaceOf(w)));
  Ints space;
  for (size_t i = 0; i < windows.size(); ++i) {
    absl::StatusOr<int64_t> count = CountWindows(x[static_cast<int>(i) + 2], windows[i]);
    if (!count.ok()) return Disagree(ctx, std::string(count.status().message()));
    space.push_back(*count);
  }
  const Shape y = WithSpace(x[0], w[0], space);
  BRAID_RETURN_IF_ERROR(CheckSides(ctx, {x, w, y}));
  return y;
}

Types InferConv(const OpContext& ctx) {
  if (ctx.inputs.size() != 3) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
  BRAID_RETURN_IF_ERROR(CheckOperands(ctx));
  BRAID_ASSIGN_OR_RETURN(const Shape y, OutputShape(ctx));
  BRAID_ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
  if (ctx.inputs.size() == 3) {
    BRAID_RETURN_IF_ERROR(CheckShape(ctx, 2, {ctx.inputs[1].shape[0]}));
    if (ctx.inputs[2].dtype != dtype) {
      return absl::InvalidArgumentError(absl::StrCat("c is ", ctx.inputs[2].ToString(),
                                                     "; the result's dtype, ",
                                                     std::string(ToString(dtype)), ", is needed"));
    }
  }
  return std::vector<TensorType>{{dtype, y}};
}

Types InferIntegerConv(const OpContext& ctx) {
  if (ctx.inputs.size() < 2) return CheckInputs(ctx, 2);
  BRAID_RETURN_IF_ERROR(CheckRanks(ctx));
  BRAID_RETURN_IF_ERROR(CheckBytes(ctx, ctx.inputs[1].shape[0]));
  BRAID_ASSIGN_OR_RETURN(const Shape y, OutputShape(ctx));
  return std::vector<TensorType>{{DType::kI32, y}};
}

// a = dy, b = w.
Types InferInputGradient(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
  BRAID_RETURN_IF_ERROR(CheckOperands(ctx));
  const Shape &y = ctx.inputs[0].shape, &w = ctx.inputs[1].shape;
  BRAID_ASSIGN_OR_RETURN(const Ints space, SpaceAttr(ctx, "space"));
  const int64_t groups = ctx.attrs.Int("groups");
  if (y[1] != w[0]) return Disagree(ctx, "the channels of a must be the outputs of b");
  if (w[1] > 0 && groups > std::numeric_limits<int32_t>::max() / w[1]) {
    return Disagree(ctx, absl::StrCat("groups is ", groups, ", which is too many"));
  }
  const Shape x = WithSpace(y[0], w[1] * groups, space);
  BRAID_RETURN_IF_ERROR(CheckElements(x));
  BRAID_RETURN_IF_ERROR(CheckSides(ctx, {x, w, y}));
  BRAID_ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
  return std::vector<TensorType>{{dtype, x}};
}

// a = x, b = dy.
Types InferWeightGradient(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
  BRAID_RETURN_IF_ERROR(CheckOperands(ctx));
  const Shape &x = ctx.inputs[0].shape, &y = ctx.inputs[1].shape;
  BRAID_ASSIGN_OR_RETURN(const Ints kernel, SpaceAttr(ctx, "kernel"));
  if (x[0] != y[0]) return Disagree(ctx, "the batches differ");
  const Shape w = WithSpace(y[1], x[1] / ctx.attrs.Int("groups"), kernel);
  BRAID_RETURN_IF_ERROR(CheckElements(w));
  BRAID_RETURN_IF_ERROR(CheckSides(ctx, {x, w, y}));
  BRAID_ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
  return std::vector<TensorType>{{dtype, w}};
}

// Each side's letters: batch b, channels i of x and o of y, groups g of both, and what is never
// split. Parts of the channels of x and y are the same whole groups.
std::string RuleOf(const OpContext& ctx, const char* plain, const char* grouped) {
  return ctx.attrs.Int("groups") == 1 ? plain : grouped;
}

std::string ConvRule(const OpContext& ctx) {
  return RuleOf(ctx, "bi[S],oi[K],o?->bo[W]; boi", "b(g{groups}i)[S],(go)_[K],(go)?->b(go)[W]");
}
std::string IntegerConvRule(const OpContext& ctx) {
  if (ctx.attrs.Int("groups") == 1) {
    return absl::StrCat("bi[S],oi[K]", ZeroPointRule(ctx, "o"), "->bo[W]; boi");
  }
  return absl::StrCat("b(g{groups}i)[S],(go)_[K]", ZeroPointRule(ctx, "(go)"), "->b(go)[W]");
}
std::string InputGradientRule(const OpContext& ctx) {
  return RuleOf(ctx, "bo[W],oi[K]->bi[S]; bio", "b(g{groups}o)[W],(go)_[K]->b(gi)[S]");
}
std::string WeightGradientRule(const OpContext& ctx) {
  return RuleOf(ctx, "bi[S],bo[W]->oi[K]; boi", "b(g{groups}i)[S],b(go)[W]->(go)_[K]");
}

// The attributes that all three share, with what one of them says of its result.
Attrs With(const Attrs& attrs, const char* name = nullptr, Ints dims = {}) {
  Attrs result;
  for (const char* shared : {"strides", "dilations", "pads_begin", "pads_end", "groups"}) {
    result.Set(shared, attrs.values().find(shared)->second);
  }
  if (name != nullptr) result.Set(name, std::move(dims));
  return result;
}

Tensor InputGradient(Tensor dy, Tensor w, const Attrs& attrs, const Shape& x) {
  return Apply("conv_input_grad", {dy, w}, With(attrs, "space", SpaceOf(x)));
}
Tensor WeightGradient(Tensor x, Tensor dy, const Attrs& attrs, const Shape& w) {
  return Apply("conv_weight_grad", {x, dy}, With(attrs, "kernel", SpaceOf(w)));
}

// The gradient as an operand beside the inputs, which may be narrower than the output.
Tensor NarrowGradient(const Context& c) { return Cast(c.output_gradients[0], c.inputs[0].dtype()); }

Gradients ConvGradient(const Context& c) {
  const Tensor x = c.inputs[0], w = c.inputs[1], dy = NarrowGradient(c);
  Gradients gradients = {InputGradient(dy, w, c.op.attrs, x.shape()),
                         WeightGradient(x, dy, c.op.attrs, w.shape())};
  if (c.inputs.size() == 3) {
    gradients.push_back(Apply("channel_sum", {c.output_gradients[0]}, {}));
  }
  return gradients;
}

Gradients InputGradientGradient(const Context& c) {
  const Tensor w = c.inputs[1], dx = NarrowGradient(c);
  return {Apply("conv", {dx, w}, With(c.op.attrs)),
          WeightGradient(dx, c.inputs[0], c.op.attrs, w.shape())};
}

Gradients WeightGradientGradient(const Context& c) {
  const Tensor x = c.inputs[0], dw = NarrowGradient(c);
  return {InputGradient(c.inputs[1], dw, c.op.attrs, x.shape()),
          Apply("conv", {x, dw}, With(c.op.attrs))};
}

// Two for each element of y and tap that it sums over: `w` holds a weight per tap and output.
double CountFlops(const Shape& w, const Shape& y) {
  if (w[0] == 0) return 0;
  return 2.0 * static_cast<double>(y.num_elements()) * static_cast<double>(w.num_elements()) /
         static_cast<double>(w[0]);
}

Attrs SampleAttrs(int axes, WindowAxis window, int64_t groups) {
  Attrs attrs;
  SetWindows(attrs, std::vector<WindowAxis>(axes, window));
  attrs.Set("groups", groups);
  return attrs;
}

OpSample Sample(std::vector<Shape> inputs, Attrs attrs) {
  OpSample sample;
  for (Shape& shape : inputs) sample.inputs.push_back({DType::kF32, std::move(shape)});
  sample.attrs = std::move(attrs);
  return sample;
}

Attrs Wide(Attrs attrs) {
  attrs.Set("dtype", DType::kF32);
  return attrs;
}

const WindowAxis kPlain, kPadded = {.stride = 2, .pad_begin = 1, .pad_end = 1};
const WindowAxis kUneven = {.stride = 1, .dilation = 2, .pad_begin = 2, .pad_end = 1};

OpDef ConvOp() {
  return OpDef("conv")
      .Infer(InferConv)
      .Rule(ConvRule)
      .Linear({0})
      .Linear({1})
      .Addend(2)
      .NarrowInputs({0, 1})
      .Gradient(ConvGradient)
      .Flops([](const OpContext& ctx) {
        return CountFlops(ctx.inputs[1].shape, ctx.outputs[0].shape);
      })
      .Sample(Sample({{3, 4, 6, 5}, {6, 4, 3, 2}}, SampleAttrs(2, kPadded, 1)))
      .Sample(Sample({{2, 4, 5, 6}, {6, 2, 3, 2}, {6}}, SampleAttrs(2, kUneven, 2)))
      .Sample(Sample({{3, 4, 4, 3}, {4, 1, 2, 2}}, SampleAttrs(2, kPlain, 4)))
      .Sample(Sample({{5, 3, 6}, {4, 3, 3}, {4}}, SampleAttrs(1, kPadded, 1)))
      .Sample(Sample({{5, 3, 6}, {4, 3, 3}, {4}}, Wide(SampleAttrs(1, kPadded, 1))))
      .Sample(Sample({{2, 2, 3, 4, 3}, {4, 2, 2, 3, 2}, {4}}, SampleAttrs(3, kPadded, 1)));
}

// x * w, both less their zero points, in whole numbers that wrap around at 32 bits.
OpDef IntegerConvOp() {
  const auto sample = [](std::vector<TensorType> inputs, Attrs attrs) {
    return OpSample{.inputs = std::move(inputs), .attrs = std::move(attrs), .int_high = 100};
  };
  constexpr DType kU8 = DType::kU8, kI8 = DType::kI8;
  return OpDef("conv_integer")
      .Infer(InferIntegerConv)
      .Rule(IntegerConvRule)
      .NoGradient()
      .Flops([](const OpContext& ctx) {
        return CountFlops(ctx.inputs[1].shape, ctx.outputs[0].shape);
      })
      .Sample(sample({{kU8, {3, 4, 6, 5}}, {kI8, {6, 4, 3, 2}}, {kU8, {1}}},
                     SampleAttrs(2, kPadded, 1)))
      .Sample(sample({{kI8, {2, 4, 5, 6}}, {kU8, {6, 2, 3, 2}}, {kI8, {1}}, {kU8, {6}}},
                     SampleAttrs(2, kUneven, 2)))
      .Sample(sample({{kI8, {3, 4, 4, 3}}, {kI8, {4, 1, 2, 2}}, {kI8, {1}}, {kI8, {1}}},
                     SampleAttrs(2, kPlain, 4)))
      .Sample(sample({{kU8, {5, 3, 6}}, {kU8, {4, 3, 3}}}, SampleAttrs(1, kPadded, 1)))
      .Sample(sample({{kU8, {2, 2, 3, 4, 3}}, {kU8, {4, 2, 2, 3, 2}}, {kU8, {1}}, {kU8, {4}}},
                     SampleAttrs(3, kPadded, 1)));
}

OpDef InputGradientOp() {
  const auto attrs = [](int axes, const WindowAxis& window, int64_t groups, Ints space) {
    Attrs result = SampleAttrs(axes, window, groups);
    result.Set("space", std::move(space));
    return result;
  };
  return OpDef("conv_input_grad")
      .Infer(InferInputGradient)
      .Rule(InputGradientRule)
      .NarrowInputs({0, 1})
      .Linear({0})
      .Linear({1})
      .Gradient(InputGradientGradient)
      .Flops(
          [](const OpContext& ctx) { return CountFlops(ctx.inputs[1].shape, ctx.inputs[0].shape); })
      .Sample(Sample({{3, 6, 3, 3}, {6, 4, 3, 2}}, attrs(2, kPadded, 1, {6, 5})))
      .Sample(Sample({{2, 6, 4, 7}, {6, 2, 3, 2}}, attrs(2, kUneven, 2, {5, 6})))
      .Sample(Sample({{3, 4, 3, 2}, {4, 1, 2, 2}}, attrs(2, kPlain, 4, {4, 3})))
      .Sample(Sample({{5, 4, 3}, {4, 3, 3}}, attrs(1, kPadded, 1, {6})))
      .Sample(Sample({{5, 4, 3}, {4, 3, 3}}, Wide(attrs(1, kPadded, 1, {6}))))
      .Sample(Sample({{2, 4, 2, 2, 2}, {4, 2, 2, 3, 2}}, attrs(3, kPadded, 1, {3, 4, 3})));
}

OpDef WeightGradientOp() {
  const auto attrs = [](int axes, const WindowAxis& window, int64_t groups, Ints kernel) {
    Attrs result = SampleAttrs(axes, window, groups);
    result.Set("kernel", std::move(kernel));
    return result;
  };
  return OpDef("conv_weight_grad")
      .Infer(InferWeightGradient)
      .Rule(WeightGradientRule)
      .NarrowInputs({0, 1})
      .Linear({0})
      .Linear({1})
      .Gradient(WeightGradientGradient)
      .Flops([](const OpContext& ctx) {
        return CountFlops(ctx.outputs[0].shape, ctx.inputs[1].shape);
      })
      .Sample(Sample({{3, 4, 6, 5}, {3, 6, 3, 3}}, attrs(2, kPadded, 1, {3, 2})))
      .Sample(Sample({{2, 4, 5, 6}, {2, 6, 4, 7}}, attrs(2, kUneven, 2, {3, 2})))
      .Sample(Sample({{3, 4, 4, 3}, {3, 4, 3, 2}}, attrs(2, kPlain, 4, {2, 2})))
      .Sample(Sample({{5, 3, 6}, {5, 4, 3}}, attrs(1, kPadded, 1, {3})))
      .Sample(Sample({{5, 3, 6}, {5, 4, 3}}, Wide(attrs(1, kPadded, 1, {3}))))
      .Sample(Sample({{2, 2, 3, 4, 3}, {2, 4, 2, 2, 2}}, attrs(3, kPadded, 1, {2, 3, 2})));
}

}  // namespace

std::vector<OpDef> ConvolutionOps() {
  return {ConvOp(), IntegerConvOp(), InputGradientOp(), WeightGradientOp()};
}

}  // namespace braid
