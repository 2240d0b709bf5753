// Choosing elements by index or condition.
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
using Ints = std::vector<int64_t>;

// `shape` with axis `axis` replaced by `dims`.
Shape ReplaceAxis(const Shape& shape, int64_t axis, std::span<const int64_t> dims) {
  Ints result(shape.begin(), shape.begin() + axis);
  result.insert(result.end(), dims.begin(), dims.end());
  result.insert(result.end(), shape.begin() + axis + 1, shape.end());
  return Shape(std::move(result));
}

OpDef GatherOp() {
  return OpDef("gather")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckInteger(ctx, 1));
        const int64_t axis = ctx.attrs.Int("axis");
        RETURN_IF_ERROR(CheckAxis(axis, ctx.inputs[0].shape.rank()));
        return std::vector<TensorType>{
            {ctx.inputs[0].dtype,
             ReplaceAxis(ctx.inputs[0].shape, axis, ctx.inputs[1].shape.dims())}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const int indices = ctx.inputs[1].shape.rank();
        for (int i = 0; i < indices; ++i) signatures.push_back(SplitAt({-1, i}, {axis + i}));
        // Rows that are elsewhere count as zeros.
        if (HasSums(ctx.inputs[0].dtype)) signatures.push_back({{sbp::S(axis), sbp::B}, {sbp::P}});
        for (int i = 0; i < ctx.inputs[0].shape.rank(); ++i) {
          if (i != axis) signatures.push_back(SplitAt({i, -1}, {i < axis ? i : i - 1 + indices}));
        }
        return signatures;
      })
      .Linear({0})
      .Gradient([](const Context& c) {
        const int64_t axis = c.op.attrs.Int("axis");
        return Gradients{Apply("gather_grad", {c.inputs[1], c.output_gradients[0]},
                               {{"axis", axis}, {"size", c.inputs[0].shape()[axis]}}),
                         Tensor()};
      })
      .Sample({.inputs = {{DType::kF32, {7, 3}}, {DType::kI32, {5}}},
               .attrs = {{"axis", int64_t{0}}},
               .int_high = 7})
      .Sample({.inputs = {{DType::kF32, {3, 7, 2}}, {DType::kI64, {2, 5}}},
               .attrs = {{"axis", int64_t{1}}},
               .int_high = 7});
}

// Adds rows of dy into a table of zeros.
OpDef GatherGradientOp() {
  return OpDef("gather_grad")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckInteger(ctx, 0));
        const int64_t axis = ctx.attrs.Int("axis"), size = ctx.attrs.Int("size");
        if (size < 0) return absl::InvalidArgumentError(absl::StrCat("size is ", size));
        const Shape &indices = ctx.inputs[0].shape, &dy = ctx.inputs[1].shape;
        bool fits = axis >= 0 && axis + indices.rank() <= dy.rank();
        for (int i = 0; fits && i < indices.rank(); ++i) fits = indices[i] == dy[axis + i];
        if (!fits) {
          return absl::InvalidArgumentError(
              absl::StrCat("a is ", indices.ToString(), ", b is ", dy.ToString(), ", axis is ",
                           axis, "; the dims of a must stand in b from there on"));
        }
        Ints dims(dy.begin(), dy.begin() + axis);
        dims.push_back(size);
        dims.insert(dims.end(), dy.begin() + axis + indices.rank(), dy.end());
        return std::vector<TensorType>{{ctx.inputs[1].dtype, Shape(std::move(dims))}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const int indices = ctx.inputs[0].shape.rank();
        for (int i = 0; i < indices; ++i) {
          signatures.push_back({{sbp::S(i), sbp::S(axis + i)}, {sbp::P}});
        }
        // Each part of the table takes the rows that fall into it.
        signatures.push_back(SplitAt({-1, -1}, {axis}));
        for (int i = 0; i < ctx.outputs[0].shape.rank(); ++i) {
          if (i != axis) signatures.push_back(SplitAt({-1, i < axis ? i : i - 1 + indices}, {i}));
        }
        return signatures;
      })
      .Linear({1})
      .Gradient([](const Context& c) {
        return Gradients{
            Tensor(), Gather(c.output_gradients[0], c.inputs[0], {.axis = c.op.attrs.Int("axis")})};
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[1].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kI32, {5}}, {DType::kF32, {5, 3}}},
               .attrs = {{"axis", int64_t{0}}, {"size", int64_t{7}}},
               .int_high = 7})
      .Sample({.inputs = {{DType::kI64, {2, 5}}, {DType::kF32, {3, 2, 5, 2}}},
               .attrs = {{"axis", int64_t{1}}, {"size", int64_t{7}}},
               .int_high = 7});
}

// Where the new axis is: the last one if nothing is said.
int64_t OneHotAxis(const OpContext& ctx) {
  return ctx.attrs.Has("axis") ? ctx.attrs.Int("axis") : ctx.inputs[0].shape.rank();
}

OpDef OneHotOp() {
  return OpDef("one_hot")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 1));
        RETURN_IF_ERROR(CheckInteger(ctx, 0));
        RETURN_IF_ERROR(CheckAxis(OneHotAxis(ctx), ctx.inputs[0].shape.rank() + 1));
        const int64_t depth = ctx.attrs.Int("depth");
        if (depth < 0) return absl::InvalidArgumentError(absl::StrCat("depth is ", depth));
        Ints dims = ctx.inputs[0].shape.dims();
        dims.insert(dims.begin() + OneHotAxis(ctx), depth);
        return std::vector<TensorType>{{ctx.attrs.Type("dtype"), Shape(std::move(dims))}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const int axis = static_cast<int>(OneHotAxis(ctx));
        for (int i = 0; i < ctx.inputs[0].shape.rank(); ++i) {
          signatures.push_back(SplitAt({i}, {i < axis ? i : i + 1}));
        }
        // Each part of the new axis takes the ones that fall into it.
        signatures.push_back(SplitAt({-1}, {axis}));
        return signatures;
      })
      .NoGradient()
      .Sample({.inputs = {{DType::kI32, {5}}},
               .attrs = {{"depth", int64_t{6}}, {"dtype", DType::kF32}},
               .int_high = 6})
      .Sample({.inputs = {{DType::kI64, {3, 5}}},
               .attrs = {{"depth", int64_t{4}}, {"dtype", DType::kF32}},
               .int_high = 4})
      .Sample({.inputs = {{DType::kI64, {3, 5}}},
               .attrs = {{"axis", int64_t{1}}, {"depth", int64_t{4}}, {"dtype", DType::kF32}},
               .int_high = 4});
}

OpDef WhereOp() {
  const TensorType condition = {DType::kBool, {5, 6}}, number = {DType::kF32, {5, 6}};
  return OpDef("where")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 3));
        if (ctx.inputs[0].dtype != DType::kBool) {
          return absl::InvalidArgumentError(
              absl::StrCat("a is ", ctx.inputs[0].ToString(), "; the condition must be bool"));
        }
        RETURN_IF_ERROR(CheckSameDType(ctx, 1, 2));
        absl::StatusOr<Shape> shape = BroadcastShapes(ctx.inputs[1].shape, ctx.inputs[2].shape);
        if (shape.ok()) shape = BroadcastShapes(ctx.inputs[0].shape, *shape);
        if (!shape.ok()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "a is ", ctx.inputs[0].shape.ToString(), ", b is ", ctx.inputs[1].shape.ToString(),
              ", c is ", ctx.inputs[2].shape.ToString(), "; they do not broadcast"));
        }
        return std::vector<TensorType>{{ctx.inputs[1].dtype, *std::move(shape)}};
      })
      .Signatures([](const OpContext& ctx, int64_t) { return BroadcastSignatures(ctx); })
      .Linear({1, 2})
      .Inplace(1, 0)
      .Inplace(2, 0)
      .Gradient([](const Context& c) {
        const Tensor condition = c.inputs[0], dy = c.output_gradients[0];
        const Tensor zero = Constant(c.graph, 0, {.dtype = dy.dtype()});
        return Gradients{Tensor(), SumTo(Where(condition, dy, zero), c.inputs[1].shape()),
                         SumTo(Where(condition, zero, dy), c.inputs[2].shape())};
      })
      .Sample({.inputs = {condition, number, number}, .attrs = {}})
      .Sample({.inputs = {{DType::kBool, {5, 1}}, number, {DType::kF32, {}}}, .attrs = {}});
}

}  // namespace

std::vector<OpDef> IndexingOps() { return {GatherOp(), GatherGradientOp(), OneHotOp(), WhereOp()}; }

}  // namespace braid
