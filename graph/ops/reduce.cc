// Reductions along axes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

bool IsReduced(const Ints& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The input's shape with 1 at the reduced axes.
Shape KeptShape(const Shape& input, const Ints& axes) {
  Shape shape = input;
  for (int64_t axis : axes) shape[axis] = 1;
  return shape;
}

// `partial` is what a split of a reduced axis leaves.
OpDef Reduce(std::string name, Sbp partial) {
  return OpDef(std::move(name))
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const TensorType& in = ctx.inputs[0];
        const Ints& axes = ctx.attrs.Ints("axes");
        if (!IsFloating(in.dtype) && in.dtype != DType::kI32 && in.dtype != DType::kI64) {
          return absl::InvalidArgumentError(
              absl::StrCat("a is ", in.ToString(), "; floating, i32 or i64 is needed"));
        }
        for (size_t i = 0; i < axes.size(); ++i) {
          RETURN_IF_ERROR(CheckAxis(axes[i], in.shape.rank()));
          if (i > 0 && axes[i] <= axes[i - 1]) {
            return absl::InvalidArgumentError(
                absl::StrCat("axes are [", absl::StrJoin(axes, ", "), "]; they must be ascending"));
          }
        }
        if (Flag(ctx.attrs, "keep_dims")) {
          return std::vector<TensorType>{{in.dtype, KeptShape(in.shape, axes)}};
        }
        Ints dims;
        for (int axis = 0; axis < in.shape.rank(); ++axis) {
          if (!IsReduced(axes, axis)) dims.push_back(in.shape[axis]);
        }
        return std::vector<TensorType>{{in.dtype, Shape(std::move(dims))}};
      })
      .Signatures([partial](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const Ints& axes = ctx.attrs.Ints("axes");
        const bool keep_dims = Flag(ctx.attrs, "keep_dims");
        int out_axis = 0;
        for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
          const bool reduced = IsReduced(axes, axis);
          signatures.push_back({{sbp::S(axis)}, {reduced ? partial : sbp::S(out_axis)}});
          if (!reduced || keep_dims) ++out_axis;
        }
        signatures.push_back({{partial}, {partial}});
        return signatures;
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[0].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"axes", Ints{0, 1}}, {"keep_dims", false}}})
      .Sample(
          {.inputs = {{DType::kF32, {5, 6}}}, .attrs = {{"axes", Ints{1}}, {"keep_dims", true}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 2}}},
               .attrs = {{"axes", Ints{0, 2}}, {"keep_dims", false}}});
}

// Back over the reduced axes.
Tensor Spread(const Context& c, Tensor dy) {
  const Shape shape = c.inputs[0].shape();  // a copy: appending moves the graph's
  return BroadcastTo(Reshape(dy, KeptShape(shape, c.op.attrs.Ints("axes"))), shape);
}

Gradients SumGradient(const Context& c) { return {Spread(c, c.output_gradients[0])}; }

Gradients MeanGradient(const Context& c) {
  double count = 1;
  for (int64_t axis : c.op.attrs.Ints("axes")) count *= c.inputs[0].shape()[axis];
  return {Spread(c, Scale(c.output_gradients[0], 1 / count))};
}

// Elements that are equal to the extreme share its gradient.
Gradients ExtremeGradient(const Context& c) {
  const Tensor x = c.inputs[0], dy = c.output_gradients[0];
  const Ints& axes = c.op.attrs.Ints("axes");
  if (axes.empty()) return {dy};
  const Shape kept = KeptShape(x.shape(), axes);
  const Tensor is_extreme = Cast(Equal(x, Reshape(c.outputs[0], kept)), x.dtype());
  const Tensor ties = ReduceSum(is_extreme, {.axes = axes, .keep_dims = true});
  return {Mul(is_extreme, Div(Reshape(dy, kept), ties))};
}

OpDef ArgMaxOp() {
  return OpDef("argmax")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const int64_t axis = ctx.attrs.Int("axis");
        RETURN_IF_ERROR(CheckAxis(axis, ctx.inputs[0].shape.rank()));
        Ints dims = ctx.inputs[0].shape.dims();
        dims.erase(dims.begin() + axis);
        return std::vector<TensorType>{{DType::kI32, Shape(std::move(dims))}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        for (int i = 0; i < ctx.inputs[0].shape.rank(); ++i) {
          if (i != axis) signatures.push_back(SplitAt({i}, {i < axis ? i : i - 1}));
        }
        return signatures;
      })
      .NoGradient()
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[0].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = {{"axis", int64_t{1}}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 2}}}, .attrs = {{"axis", int64_t{1}}}});
}

}  // namespace

std::vector<OpDef> ReduceOps() {
  return {Reduce("reduce_sum", sbp::P).Gradient(SumGradient),
          Reduce("reduce_mean", sbp::P).Gradient(MeanGradient),
          Reduce("reduce_max", sbp::Pmax).Gradient(ExtremeGradient),
          Reduce("reduce_min", sbp::Pmin).Gradient(ExtremeGradient), ArgMaxOp()};
}

}  // namespace braid
