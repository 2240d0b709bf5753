// Pooling over the space of [n, c, space...]: maxima and means of windows that slide (kernel,
// strides, dilations, pads_begin, pads_end, ceil_mode), or of as many windows as `windows` says,
// spread evenly over the axis ("adaptive"). Padding is no element: it is never a maximum, and a
// window without elements gives -inf or 0.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "graph/ops/window.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

absl::Status Wrong(const Shape& x, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("x is ", x.ToString(), "; ", why));
}

// y's shape from x's and the attributes.
absl::StatusOr<Shape> PooledShape(const Attrs& attrs, const Shape& x) {
  if (x.rank() < 3 || x.rank() > 5) {
    return Wrong(x, "3, 4 or 5 axes are needed: two and one for each of 1 to 3 of space");
  }
  BRAID_RETURN_IF_ERROR(CheckElements(x));
  const Ints space = SpaceOf(x);
  if (Shape(space).num_elements() > std::numeric_limits<int32_t>::max()) {
    return Wrong(x, "2^31 elements of space or more are too many");
  }
  if (attrs.Has("windows")) {
    const Ints& windows = attrs.Ints("windows");
    bool fits = windows.size() == space.size() && !attrs.Has("kernel");
    for (int64_t count : windows) fits = fits && count >= 1;
    for (int64_t size : space) fits = fits && size >= 1;
    if (!fits) {
      return Wrong(x, absl::StrCat("windows is [", absl::StrJoin(windows, ", "),
                                   "]; a number of at least 1 for each axis of space, none of them "
                                   "empty, and no kernel are needed"));
    }
    Shape y = WithSpace(x[0], x[1], windows);
    BRAID_RETURN_IF_ERROR(CheckElements(y));
    return y;
  }
  for (const char* name : {"kernel", "strides", "dilations", "pads_begin", "pads_end"}) {
    if (!attrs.Has(name)) return Wrong(x, absl::StrCat(name, " is missing"));
  }
  if (attrs.Ints("kernel").size() != space.size()) {
    return Wrong(x, absl::StrCat("kernel has ", attrs.Ints("kernel").size(),
                                 " sizes; one for each axis of space is needed"));
  }
  BRAID_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes,
                         WindowsOf(attrs, attrs.Ints("kernel")));
  Ints windows;
  for (size_t i = 0; i < axes.size(); ++i) {
    absl::StatusOr<int64_t> count = CountWindows(space[i], axes[i], Flag(attrs, "ceil_mode"));
    if (!count.ok()) return Wrong(x, std::string(count.status().message()));
    windows.push_back(*count);
  }
  Shape y = WithSpace(x[0], x[1], windows);
  BRAID_RETURN_IF_ERROR(CheckElements(y));
  return y;
}

absl::Status CheckDivisor(const Attrs& attrs) {
  if (attrs.Has("divisor")) {
    const std::string& divisor = attrs.String("divisor");
    if (divisor == "elements" || divisor == "padded" || divisor == "one") return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("divisor is \"", divisor, "\"; elements, padded or one is needed"));
  }
  return absl::InvalidArgumentError("divisor is missing; elements, padded or one is needed");
}

Types InferMax(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_ASSIGN_OR_RETURN(const Shape y, PooledShape(ctx.attrs, ctx.inputs[0].shape));
  std::vector<TensorType> types = {{ctx.inputs[0].dtype, y}};
  if (Flag(ctx.attrs, "with_indices")) types.push_back({DType::kI64, y});
  return types;
}

// a = x, b = dy.
Types InferMaxGradient(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
  BRAID_ASSIGN_OR_RETURN(const Shape y, PooledShape(ctx.attrs, ctx.inputs[0].shape));
  BRAID_RETURN_IF_ERROR(CheckShape(ctx, 1, y));
  return std::vector<TensorType>{ctx.inputs[0]};
}

Types InferAverage(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckDivisor(ctx.attrs));
  BRAID_ASSIGN_OR_RETURN(const Shape y, PooledShape(ctx.attrs, ctx.inputs[0].shape));
  return std::vector<TensorType>{{ctx.inputs[0].dtype, y}};
}

Types InferAverageGradient(const OpContext& ctx) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckMinRank(ctx, 0, 3));
  BRAID_RETURN_IF_ERROR(CheckDivisor(ctx.attrs));
  const Shape& dy = ctx.inputs[0].shape;
  const Shape x = WithSpace(dy[0], dy[1], ctx.attrs.Ints("space"));
  BRAID_ASSIGN_OR_RETURN(const Shape y, PooledShape(ctx.attrs, x));
  if (y == dy) return std::vector<TensorType>{{ctx.inputs[0].dtype, x}};
  return Wrong(x, absl::StrCat("its windows are ", y.ToString(), ", a is ", dy.ToString()));
}

double CountFlops(const Attrs& attrs, const Shape& x, const Shape& y) {
  if (attrs.Has("windows")) return static_cast<double>(x.num_elements());
  double taps = 1;
  for (int64_t size : attrs.Ints("kernel")) taps *= static_cast<double>(size);
  return taps * static_cast<double>(y.num_elements());
}

Attrs Sliding(Ints kernel, WindowAxis window) {
  Attrs attrs;
  SetWindows(attrs, std::vector<WindowAxis>(kernel.size(), window));
  attrs.Set("kernel", std::move(kernel));
  return attrs;
}

const WindowAxis kHalves = {.stride = 2}, kPadded = {.stride = 2, .pad_begin = 1, .pad_end = 1};
const WindowAxis kUneven = {.stride = 1, .dilation = 2, .pad_begin = 2, .pad_end = 1};

struct Case {
  Shape x, y;
  Attrs attrs;
  bool ceil_mode = false;
};
std::vector<Case> Cases() {
  return {{{3, 2, 5, 6}, {3, 2, 2, 3}, Sliding({2, 2}, kHalves)},
          {{2, 3, 6, 5}, {2, 3, 4, 3}, Sliding({3, 3}, kPadded), true},
          {{2, 2, 5, 6}, {2, 2, 4, 7}, Sliding({3, 2}, kUneven)},
          {{3, 2, 7}, {3, 2, 3}, Sliding({3}, kHalves)},
          {{2, 2, 3, 4, 5}, {2, 2, 2, 3, 3}, Sliding({3, 3, 3}, kPadded), true},
          {{2, 3, 5, 7}, {2, 3, 3, 4}, {{"windows", Ints{3, 4}}}}};
}

// Calls add(case, attributes) for the cases of an operator.
template <class Add>
void AddSamples(Add add) {
  for (Case& c : Cases()) {
    if (!c.attrs.Has("windows")) c.attrs.Set("ceil_mode", c.ceil_mode);
    add(c, c.attrs);
  }
}

OpDef MaxPoolOp() {
  OpDef def =
      OpDef("max_pool")
          .Infer(InferMax)
          .Rule("nc[S]->nc[W]*")
          .KeepsNarrow({0})
          .Gradient([](const Context& c) {
            Attrs attrs;
            for (const auto& [name, value] : c.op.attrs.values()) {
              if (name != "with_indices") attrs.Set(name, value);
            }
            return Gradients{Apply("max_pool_grad", {c.inputs[0], c.output_gradients[0]}, attrs)};
          })
          .Flops([](const OpContext& ctx) {
            return CountFlops(ctx.attrs, ctx.inputs[0].shape, ctx.outputs[0].shape);
          });
  bool with_indices = false;
  AddSamples([&](const Case& c, Attrs attrs) {
    attrs.Set("with_indices", with_indices);
    with_indices = !with_indices;
    def.Sample({.inputs = {{DType::kF32, c.x}}, .attrs = std::move(attrs)});
  });
  return def;
}

OpDef MaxPoolGradientOp() {
  OpDef def = OpDef("max_pool_grad")
                  .Infer(InferMaxGradient)
                  .Rule("nc[S],nc[W]->nc[S]")
                  .KeepsNarrow({0, 1})
                  .Linear({1})
                  .NoGradient()
                  .Flops([](const OpContext& ctx) {
                    return CountFlops(ctx.attrs, ctx.inputs[0].shape, ctx.inputs[1].shape);
                  });
  AddSamples([&](const Case& c, Attrs attrs) {
    def.Sample({.inputs = {{DType::kF32, c.x}, {DType::kF32, c.y}}, .attrs = std::move(attrs)});
  });
  return def;
}

const char* const kDivisors[] = {"elements", "padded", "one"};

OpDef AveragePoolOp() {
  OpDef def =
      OpDef("avg_pool")
          .Infer(InferAverage)
          .Rule("nc[S]->nc[W]")
          .KeepsNarrow({0})
          .Linear({0})
          .Gradient([](const Context& c) {
            Attrs attrs = c.op.attrs;
            attrs.Set("space", SpaceOf(c.inputs[0].shape()));
            return Gradients{Apply("avg_pool_grad", {c.output_gradients[0]}, std::move(attrs))};
          })
          .Flops([](const OpContext& ctx) {
            return CountFlops(ctx.attrs, ctx.inputs[0].shape, ctx.outputs[0].shape);
          });
  int next = 0;
  AddSamples([&](const Case& c, Attrs attrs) {
    attrs.Set("divisor", std::string(kDivisors[next++ % 3]));
    def.Sample({.inputs = {{DType::kF32, c.x}}, .attrs = std::move(attrs)});
  });
  return def;
}

OpDef AveragePoolGradientOp() {
  OpDef def = OpDef("avg_pool_grad")
                  .Infer(InferAverageGradient)
                  .Rule("nc[W]->nc[S]")
                  .KeepsNarrow({0})
                  .Linear({0})
                  .Gradient([](const Context& c) {
                    Attrs attrs;
                    for (const auto& [name, value] : c.op.attrs.values()) {
                      if (name != "space") attrs.Set(name, value);
                    }
                    return Gradients{Apply("avg_pool", {c.output_gradients[0]}, attrs)};
                  })
                  .Flops([](const OpContext& ctx) {
                    return CountFlops(ctx.attrs, ctx.outputs[0].shape, ctx.inputs[0].shape);
                  });
  int next = 0;
  AddSamples([&](const Case& c, Attrs attrs) {
    attrs.Set("divisor", std::string(kDivisors[next++ % 3]));
    attrs.Set("space", SpaceOf(c.x));
    def.Sample({.inputs = {{DType::kF32, c.y}}, .attrs = std::move(attrs)});
  });
  return def;
}

}  // namespace

std::vector<OpDef> PoolingOps() {
  return {MaxPoolOp(), MaxPoolGradientOp(), AveragePoolOp(), AveragePoolGradientOp()};
}

}  // namespace braid
