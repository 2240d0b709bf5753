// Matrix products.
#include <string>
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
  if (dtype == of_inputs || (IsNarrow(of_inputs) && dtype == DType::kF32)) return dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype is ", std::string(ToString(dtype)), " and the inputs are ",
                   std::string(ToString(of_inputs)), "; the result has the inputs' dtype, or f32 ",
                   "of bf16 and f16"));
}

absl::Status CheckBytes(const OpContext& ctx, int64_t outputs) {
  const size_t count = ctx.inputs.size();
  if (count != 3 && count != 4) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
  const DType a = ctx.inputs[0].dtype, b = ctx.inputs[1].dtype;
  const auto is_byte = [](DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; };
  if (!is_byte(a) || !is_byte(b)) {
    return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(), " and b is ",
                                                   ctx.inputs[1].ToString(),
                                                   "; u8 or i8 are needed"));
  }
  for (size_t i = 2; i < count; ++i) {
    const bool is_of_a = i == 2;
    const TensorType one = {is_of_a ? a : b, {1}}, scalar = {one.dtype, {}}, each = {b, {outputs}};
    const bool fits = ctx.inputs[i] == one || ctx.inputs[i] == scalar;
    if (fits || (!is_of_a && ctx.inputs[i] == each)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the zero point of ", is_of_a ? "a" : "b", " is ", ctx.inputs[i].ToString(), "; ",
        one.ToString(), is_of_a ? "" : absl::StrCat(" or ", each.ToString()), " is needed"));
  }
  return absl::OkStatus();
}

std::string ZeroPointRule(const OpContext& ctx, std::string_view outputs) {
  std::string rule;
  for (size_t i = 2; i < ctx.inputs.size(); ++i) {
    const Shape& shape = ctx.inputs[i].shape;
    absl::StrAppend(&rule, ",");
    if (shape.rank() == 1) absl::StrAppend(&rule, shape[0] == 1 ? "1" : std::string(outputs));
  }
  return rule;
}

namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;

// The gradient as an operand beside the inputs.
Tensor NarrowGradient(const Context& c) { return Cast(c.output_gradients[0], c.inputs[0].dtype()); }

std::string MatmulRule(const OpContext& ctx) {
  return absl::StrCat(Flag(ctx.attrs, "transpose_a") ? "...km" : "...mk",
                      Flag(ctx.attrs, "transpose_b") ? ",...nk" : ",...kn", "->...mn; mnk");
}

absl::Status CheckMatmul(const OpContext& ctx) {
  const bool is_transposed = Flag(ctx.attrs, "transpose_a");
  if (!is_transposed || ctx.inputs[0].shape.rank() == 2 || ctx.inputs[1].shape.rank() > 2) {
    return absl::OkStatus();
  }
  return Disagree(ctx, "a transposed a with leading dims needs b with leading dims");
}

double MatmulFlops(const OpContext& ctx) {
  const Shape& a = ctx.inputs[0].shape;
  const int k = a.rank() - (Flag(ctx.attrs, "transpose_a") ? 2 : 1);
  return 2.0 * ctx.outputs[0].shape.num_elements() * a[k];
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
      .Rule(MatmulRule)
      .Takes("ff")
      .Gives(ProductType)
      .Check(CheckMatmul)
      .Linear({0})
      .Linear({1})
      .NarrowInputs({0, 1})
      .Gradient(MatmulGradient)
      .Flops(MatmulFlops)
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

bool IsRow(const OpContext& ctx, size_t addend) { return ctx.inputs[addend].shape.rank() == 1; }

constexpr size_t kAddends = 2;  // the first of matmul_add's

std::string MatmulAddRule(const OpContext& ctx) {
  std::string rule = Flag(ctx.attrs, "transpose_b") ? "...mk,nk" : "...mk,kn";
  for (size_t i = kAddends; i < ctx.inputs.size(); ++i) {
    absl::StrAppend(&rule, IsRow(ctx, i) ? ",n" : ",...mn");
  }
  return absl::StrCat(rule, "->...mn; mnk");
}

Types InferMatmulAdd(const OpContext& ctx) {
  if (ctx.inputs.size() != 4) BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 3));
  BRAID_RETURN_IF_ERROR(CheckFloating(ctx, 0));
  BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 1));
  const Shape &a = ctx.inputs[0].shape, &b = ctx.inputs[1].shape;
  if (Flag(ctx.attrs, "transpose_a")) return Disagree(ctx, "a must not be transposed");
  const int depth = Flag(ctx.attrs, "transpose_b") ? 1 : 0;
  if (a.rank() < 2 || b.rank() != 2 || a[a.rank() - 1] != b[depth]) {
    return Disagree(ctx, "b must be a matrix, and its depth the last axis of a");
  }
  std::vector<int64_t> dims(a.dims().begin(), a.dims().end() - 1);
  dims.push_back(b[1 - depth]);
  if (ctx.inputs.size() == 4 && IsRow(ctx, kAddends) == IsRow(ctx, kAddends + 1)) {
    return Disagree(ctx, "of two addends one is a row, and one as large as the result");
  }
  BRAID_ASSIGN_OR_RETURN(const DType dtype, ProductType(ctx));
  const TensorType result = {dtype, Shape(dims)};
  for (size_t i = kAddends; i < ctx.inputs.size(); ++i) {
    const TensorType row = {dtype, {dims.back()}};
    const TensorType& expected = IsRow(ctx, i) ? row : result;
    if (ctx.inputs[i] == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("an addend is ", ctx.inputs[i].ToString(), "; ",
                                                   result.ToString(), " or ", row.ToString(),
                                                   " is needed"));
  }
  return std::vector<TensorType>{result};
}

// op(a) op(b) and then its other one or two inputs, added in their order: a row is added to all
// rows. The compiler writes it (compiler/physical/fold_sums.h).
OpDef MatmulAddOp() {
  const auto sample = [](std::vector<Shape> shapes, bool transpose_b, Attrs attrs = {}) {
    OpSample result;
    for (Shape& shape : shapes) result.inputs.push_back({DType::kF32, std::move(shape)});
    attrs.Set("transpose_a", false);
    attrs.Set("transpose_b", transpose_b);
    result.attrs = std::move(attrs);
    return result;
  };
  return OpDef("matmul_add")
      .Infer(InferMatmulAdd)
      .Rule(MatmulAddRule)
      .Linear({0})
      .Linear({1})
      .Addend(kAddends)
      .Addend(kAddends + 1)
      .NarrowInputs({0, 1})
      .NoGradient()
      .Flops(MatmulFlops)
      .Sample(sample({{5, 6}, {6, 7}, {7}}, false))
      .Sample(sample({{3, 5, 6}, {7, 6}, {3, 5, 7}}, true))
      .Sample(sample({{5, 6}, {6, 7}, {7}, {5, 7}}, false))
      .Sample(sample({{5, 6}, {7, 6}, {5, 7}, {7}}, true, {{"dtype", DType::kF32}}));
}

std::string IntegerMatmulRule(const OpContext& ctx) {
  return absl::StrCat("...mk,", Flag(ctx.attrs, "transpose_b") ? "nk" : "kn",
                      ZeroPointRule(ctx, "n"), "->...mn; mnk");
}

Types InferIntegerMatmul(const OpContext& ctx) {
  if (ctx.inputs.size() < 2) return CheckInputs(ctx, 2);
  const Shape &a = ctx.inputs[0].shape, &b = ctx.inputs[1].shape;
  const int depth = Flag(ctx.attrs, "transpose_b") ? 1 : 0;
  if (a.rank() < 2 || b.rank() != 2 || a[a.rank() - 1] != b[depth]) {
    return Disagree(ctx, "b must be a matrix, and its depth the last axis of a");
  }
  BRAID_RETURN_IF_ERROR(CheckBytes(ctx, b[1 - depth]));
  std::vector<int64_t> dims(a.dims().begin(), a.dims().end() - 1);
  dims.push_back(b[1 - depth]);
  return std::vector<TensorType>{{DType::kI32, Shape(std::move(dims))}};
}

// a op(b), both less their zero points, in whole numbers that wrap around at 32 bits.
OpDef IntegerMatmulOp() {
  const auto sample = [](std::vector<TensorType> inputs, bool transpose_b) {
    return OpSample{
        .inputs = std::move(inputs), .attrs = {{"transpose_b", transpose_b}}, .int_high = 100};
  };
  constexpr DType kU8 = DType::kU8, kI8 = DType::kI8;
  return OpDef("matmul_integer")
      .Infer(InferIntegerMatmul)
      .Rule(IntegerMatmulRule)
      .NoGradient()
      .Flops(MatmulFlops)
      .Sample(sample({{kU8, {5, 6}}, {kI8, {6, 7}}, {kU8, {1}}}, false))
      .Sample(sample({{kI8, {3, 5, 6}}, {kU8, {7, 6}}, {kI8, {1}}, {kU8, {7}}}, true))
      .Sample(sample({{kU8, {5, 6}}, {kI8, {6, 7}}, {kU8, {1}}, {kI8, {1}}}, false))
      .Sample(sample({{kI8, {5, 6}}, {kU8, {6, 7}}}, false))
      .Sample(sample({{kI8, {5, 6}}, {kI8, {6, 7}}, {kI8, {}}, {kI8, {}}}, false));
}

OpDef TensordotOp() {
  return OpDef("tensordot")
      .Rule("Nkm,Nkn->mn")
      .Takes("ff")
      .Gives(ProductType)
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

std::vector<OpDef> MatmulOps() {
  return {MatmulOp(), MatmulAddOp(), IntegerMatmulOp(), TensordotOp()};
}

}  // namespace braid
