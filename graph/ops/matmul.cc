// Matrix products.
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/product_type.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {

absl::StatusOr<DType> ProductType(const OpContext& ctx) {
  const DType of_inputs = ctx.inputs[0].dtype;
  if (!ctx.attrs.Has("dtype")) return of_inputs;
  const DType dtype = ctx.attrs.Type("dtype");
  const bool is_narrow = of_inputs == DType::kBF16 || of_inputs == DType::kF16;
  if (dtype == of_inputs || (is_narrow && dtype == DType::kF32)) return dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype is ", std::string(ToString(dtype)), " and the inputs are ",
                   std::string(ToString(of_inputs)), "; the result has the inputs' dtype, or f32 ",
                   "of bf16 and f16"));
}

namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// Axes of m and k in a, k and n in b.
struct MatmulAxes {
  int m, k_of_a, k_of_b, n;
};

MatmulAxes AxesOf(const OpContext& ctx) {
  const int ra = ctx.inputs[0].shape.rank(), rb = ctx.inputs[1].shape.rank();
  const bool ta = Flag(ctx.attrs, "transpose_a"), tb = Flag(ctx.attrs, "transpose_b");
  return {ta ? ra - 1 : ra - 2, ta ? ra - 2 : ra - 1, tb ? rb - 1 : rb - 2, tb ? rb - 2 : rb - 1};
}

// The gradient as an operand beside the inputs.
Tensor NarrowGradient(const Context& c) { return Cast(c.output_gradients[0], c.inputs[0].dtype()); }

Types InferMatmul(const OpContext& ctx) {
  RETURN_IF_ERROR(CheckInputs(ctx, 2));
  RETURN_IF_ERROR(CheckFloating(ctx, 0));
  RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
  const Shape &a = ctx.inputs[0].shape, &b = ctx.inputs[1].shape;
  if (a.rank() < 2 || b.rank() < 2) return Disagree(ctx, "both need 2 axes or more");
  const bool ta = Flag(ctx.attrs, "transpose_a"), tb = Flag(ctx.attrs, "transpose_b");
  const MatmulAxes axes = AxesOf(ctx);
  if (a[axes.k_of_a] != b[axes.k_of_b]) {
    return Disagree(ctx, absl::StrCat("k differs", ta ? ", a is transposed" : "",
                                      tb ? ", b is transposed" : ""));
  }
  if (ta && a.rank() > 2 && b.rank() == 2) {
    return Disagree(ctx, "a transposed a with leading dims needs b with leading dims");
  }
  absl::StatusOr<Shape> leading = BroadcastShapes(Leading(a, 2), Leading(b, 2));
  if (!leading.ok()) return Disagree(ctx, "leading dims do not broadcast");
  std::vector<int64_t> dims = leading->dims();
  dims.push_back(a[axes.m]);
  dims.push_back(b[axes.n]);
  ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
  return std::vector<TensorType>{{dtype, Shape(std::move(dims))}};
}

std::vector<SbpSignature> MatmulSignatures(const OpContext& ctx, int64_t) {
  std::vector<SbpSignature> signatures;
  const Shape &a = ctx.inputs[0].shape, &b = ctx.inputs[1].shape;
  const MatmulAxes axes = AxesOf(ctx);
  const Shape leading = Leading(ctx.outputs[0].shape, 2);
  for (int axis = 0; axis < leading.rank(); ++axis) {
    signatures.push_back({{BroadcastOperandSbp(Leading(a, 2), leading, axis),
                           BroadcastOperandSbp(Leading(b, 2), leading, axis)},
                          {sbp::S(axis)}});
  }
  const int rank = ctx.outputs[0].shape.rank();
  signatures.push_back(SplitAt({axes.m, -1}, {rank - 2}));
  signatures.push_back(SplitAt({-1, axes.n}, {rank - 1}));
  signatures.push_back({{sbp::S(axes.k_of_a), sbp::S(axes.k_of_b)}, {sbp::P}});
  return signatures;
}

Gradients MatmulGradient(const Context& c) {
  const Tensor a = c.inputs[0], b = c.inputs[1], dy = NarrowGradient(c);
  const bool ta = Flag(c.op.attrs, "transpose_a"), tb = Flag(c.op.attrs, "transpose_b");
  Tensor da = ta ? MatMul(b, dy, {.transpose_a = tb, .transpose_b = true})
                 : MatMul(dy, b, {.transpose_b = !tb});
  if (b.shape().rank() == 2 && !ta) {
    // The rows of a, whatever its leading dims, are summed over in one product.
    return {da, tb ? Tensordot(dy, a) : Tensordot(a, dy)};
  }
  Tensor db = tb ? MatMul(dy, a, {.transpose_a = true, .transpose_b = ta})
                 : MatMul(a, dy, {.transpose_a = !ta});
  return {SumTo(da, a.shape()), SumTo(db, b.shape())};
}

OpDef MatmulOp() {
  const auto sample = [](Shape a, Shape b, bool transpose_a, bool transpose_b) {
    return OpSample{.inputs = {{DType::kF32, std::move(a)}, {DType::kF32, std::move(b)}},
                    .attrs = {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}};
  };
  return OpDef("matmul")
      .Infer(InferMatmul)
      .Signatures(MatmulSignatures)
      .Linear({0})
      .Linear({1})
      .NarrowInputs({0, 1})
      .Gradient(MatmulGradient)
      .Flops([](const OpContext& ctx) {
        return 2.0 * ctx.outputs[0].shape.num_elements() * ctx.inputs[0].shape[AxesOf(ctx).k_of_a];
      })
      .Sample(sample({5, 6}, {6, 7}, false, false))
      .Sample(sample({6, 5}, {7, 6}, true, true))
      .Sample(sample({5, 6}, {7, 6}, false, true))
      .Sample({.inputs = {{DType::kF32, {5, 6}}, {DType::kF32, {6, 7}}},
               .attrs = {{"dtype", DType::kF32}}})
      .Sample(sample({3, 5, 6}, {6, 2}, false, false))
      .Sample(sample({3, 5, 6}, {3, 6, 2}, false, false))
      .Sample(sample({3, 6, 5}, {3, 2, 6}, true, true))
      .Sample(sample({2, 1, 5, 6}, {3, 6, 2}, false, false));
}

OpDef TensordotOp() {
  return OpDef("tensordot")
      .Infer([](const OpContext& ctx) -> Types {
        RETURN_IF_ERROR(CheckInputs(ctx, 2));
        RETURN_IF_ERROR(CheckFloating(ctx, 0));
        RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
        const Shape &a = ctx.inputs[0].shape, &b = ctx.inputs[1].shape;
        if (a.rank() < 2 || b.rank() < 2) return Disagree(ctx, "both need 2 axes or more");
        if (Leading(a, 1) != Leading(b, 1)) return Disagree(ctx, "leading dims differ");
        ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
        return std::vector<TensorType>{{dtype, {a[a.rank() - 1], b[b.rank() - 1]}}};
      })
      .Signatures([](const OpContext& ctx, int64_t) {
        std::vector<SbpSignature> signatures;
        const int last = ctx.inputs[0].shape.rank() - 1;
        for (int axis = 0; axis < last; ++axis) {
          signatures.push_back({{sbp::S(axis), sbp::S(axis)}, {sbp::P}});
        }
        signatures.push_back(SplitAt({last, -1}, {0}));
        signatures.push_back(SplitAt({-1, last}, {1}));
        return signatures;
      })
      .Linear({0})
      .Linear({1})
      .NarrowInputs({0, 1})
      .Gradient([](const Context& c) {
        const Tensor dy = NarrowGradient(c);
        return Gradients{MatMul(c.inputs[1], dy, {.transpose_b = true}), MatMul(c.inputs[0], dy)};
      })
      .Flops([](const OpContext& ctx) {
        const Shape& b = ctx.inputs[1].shape;
        return 2.0 * ctx.inputs[0].shape.num_elements() * b[b.rank() - 1];
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}, {DType::kF32, {5, 3}}}, .attrs = {}})
      .Sample({.inputs = {{DType::kF32, {2, 5, 3}}, {DType::kF32, {2, 5, 4}}},
               .attrs = {{"dtype", DType::kF32}}});
}

}  // namespace

std::vector<OpDef> MatmulOps() { return {MatmulOp(), TensordotOp()}; }

}  // namespace braid
