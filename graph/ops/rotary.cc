// Rotary position embedding.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

absl::Status CheckPositions(const OpContext& ctx, int axis) {
  BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
  const Shape &x = ctx.inputs[0].shape, &positions = ctx.inputs[1].shape;
  const bool fits = positions == Shape{x[axis]} || (axis > 0 && positions == Shape{x[0], x[axis]});
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a is ", x.ToString(), " with time at axis ", axis,
                                                 ", b is ", positions.ToString(),
                                                 "; positions [time] or [batch, time] are needed"));
}

std::string RotaryRule(const OpContext& ctx) {
  if (ctx.inputs.size() == 1) return "N[d]->N[d]";
  if (ctx.inputs[1].shape.rank() == 1) return "A{axis}tB[d],t->AtB[d]";
  return absl::StrCat("bA{", ctx.attrs.Int("axis") - 1, "}tB[d],bt->bAtB[d]");
}

// x [.., time at `axis`, .., depth] and, if they do not count up from `offset`, its positions.
OpDef RotaryOp() {
  const auto attrs = [](int64_t axis, bool interleaved, bool inverse) {
    return Attrs{{"axis", axis},
                 {"base", 100.0},
                 {"offset", int64_t{3}},
                 {"interleaved", interleaved},
                 {"inverse", inverse}};
  };
  const TensorType x = {DType::kF32, {2, 3, 5, 6}};
  return OpDef("rotary")
      .Infer([](const OpContext& ctx) -> Types {
        if (ctx.inputs.size() != 2) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
        BRAID_RETURN_IF_ERROR(CheckMinRank(ctx, 0, 2));
        const Shape& x = ctx.inputs[0].shape;
        const int64_t axis = ctx.attrs.Int("axis"), offset = ctx.attrs.Int("offset");
        const double base = ctx.attrs.Double("base");
        BRAID_RETURN_IF_ERROR(CheckAxis(axis, x.rank() - 1));
        if (x[x.rank() - 1] % 2 != 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("a is ", x.ToString(), "; an even last axis is needed"));
        }
        // Beyond this a position is no longer exact, and much earlier no longer of use.
        if (constexpr int64_t kMost = int64_t{1} << 40; offset < -kMost || offset > kMost) {
          return absl::InvalidArgumentError(
              absl::StrCat("offset is ", offset, "; at most 2^40 from 0 is needed"));
        }
        if (!(base > 0) || !std::isfinite(base)) {
          return absl::InvalidArgumentError(
              absl::StrCat("base is ", base, "; a positive number is needed"));
        }
        if (ctx.inputs.size() == 2)
          BRAID_RETURN_IF_ERROR(CheckPositions(ctx, static_cast<int>(axis)));
        return std::vector<TensorType>{ctx.inputs[0]};
      })
      .Rule(RotaryRule)
      .Linear({0})
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        std::vector<Tensor> inputs = c.inputs;
        inputs[0] = c.output_gradients[0];
        Attrs attrs = c.op.attrs;
        attrs.Set("inverse", !Flag(attrs, "inverse"));
        Gradients gradients(c.inputs.size());
        gradients[0] = Apply("rotary", inputs, attrs);
        return gradients;
      })
      .Flops([](const OpContext& ctx) { return 3.0 * ctx.inputs[0].shape.num_elements(); })
      .Sample({.inputs = {x}, .attrs = attrs(2, false, false)})
      .Sample({.inputs = {{DType::kF32, {2, 5, 3, 8}}}, .attrs = attrs(1, true, true)})
      .Sample({.inputs = {x, {DType::kI32, {5}}}, .attrs = attrs(2, true, false), .int_high = 9})
      .Sample({.inputs = {{DType::kF32, {2, 5, 3, 4}}, {DType::kI64, {2, 5}}},
               .attrs = attrs(1, false, true),
               .int_high = 9});
}

}  // namespace

std::vector<OpDef> RotaryOps() { return {RotaryOp()}; }

}  // namespace braid
