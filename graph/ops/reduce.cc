// Reductions along axes.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/product_type.h"
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

bool IsWideNumber(DType dtype) {
  return IsFloating(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
}

struct Reduction {
  std::string name;
  // What a split of a reduced axis leaves; nothing: it cannot be split.
  std::optional<Sbp> partial = std::nullopt;
  bool takes_partial = false;  // addends of the input reduce to addends of the output
  bool takes_integers = true;  // i32, i64
  bool takes_bytes = false;    // u8, bool
  bool keeps_wide = false;     // of narrow inputs, attribute dtype may ask for f32
  double low = -1, high = 1;   // of the samples
};

Types InferReduced(const OpContext& ctx, const Reduction& reduction) {
  BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
  const TensorType& in = ctx.inputs[0];
  const Ints& axes = ctx.attrs.Ints("axes");
  const bool is_byte = in.dtype == DType::kU8 || in.dtype == DType::kBool;
  if (!IsFloating(in.dtype) && !(reduction.takes_integers && IsWideNumber(in.dtype)) &&
      !(reduction.takes_bytes && is_byte)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a is ", in.ToString(), "; ", reduction.takes_integers ? "floating, i32" : "a floating",
        reduction.takes_bytes      ? ", i64, u8 or bool is needed"
        : reduction.takes_integers ? " or i64 is needed"
                                   : " dtype is needed"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    BRAID_RETURN_IF_ERROR(CheckAxis(axes[i], in.shape.rank()));
    if (i > 0 && axes[i] <= axes[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axes are [", absl::StrJoin(axes, ", "), "]; they must be ascending"));
    }
  }
  DType dtype = in.dtype;
  if (reduction.keeps_wide) {
    BRAID_ASSIGN_OR_RETURN(dtype, ProductType(ctx));
  }
  if (Flag(ctx.attrs, "keep_dims")) {
    return std::vector<TensorType>{{dtype, KeptShape(in.shape, axes)}};
  }
  Ints dims;
  for (int axis = 0; axis < in.shape.rank(); ++axis) {
    if (!IsReduced(axes, axis)) dims.push_back(in.shape[axis]);
  }
  return std::vector<TensorType>{{dtype, Shape(std::move(dims))}};
}

FactorRule ReducedFactors(const OpContext& ctx, const Reduction& reduction) {
  FactorRule rule;
  const Ints& axes = ctx.attrs.Ints("axes");
  const bool keep_dims = Flag(ctx.attrs, "keep_dims");
  int out_axis = 0;
  for (int axis = 0; axis < ctx.inputs[0].shape.rank(); ++axis) {
    const bool reduced = IsReduced(axes, axis);
    if (!reduced || reduction.partial) {
      rule.factors.push_back({.inputs = {axis},
                              .outputs = {reduced ? Factor::kAbsent : out_axis},
                              .partial = reduction.partial.value_or(sbp::P)});
    }
    if (!reduced || keep_dims) ++out_axis;
  }
  return rule;
}

OpDef Reduce(const Reduction& reduction) {
  const auto sample = [&](Shape shape, Ints axes, bool keep_dims) {
    return OpSample{.inputs = {{DType::kF32, std::move(shape)}},
                    .attrs = {{"axes", std::move(axes)}, {"keep_dims", keep_dims}},
                    .low = reduction.low,
                    .high = reduction.high};
  };
  OpDef def =
      OpDef(reduction.name)
          .Infer([reduction](const OpContext& ctx) { return InferReduced(ctx, reduction); })
          .Rule([reduction](const OpContext& ctx) { return ReducedFactors(ctx, reduction); })
          .Flops([](const OpContext& ctx) {
            return static_cast<double>(ctx.inputs[0].shape.num_elements());
          })
          .Sample(sample({5, 6}, {0, 1}, false))
          .Sample(sample({5, 6}, {1}, true))
          .Sample(sample({3, 5, 2}, {0, 2}, false))
          .Sample(sample({5, 6}, {}, false));
  if (reduction.takes_partial) def.Passes(*reduction.partial, {0});
  if (reduction.takes_integers) {
    OpSample integers = sample({5, 6}, {0}, false);
    integers.inputs[0].dtype = DType::kI64;
    def.Sample(std::move(integers));
  }
  if (reduction.takes_bytes) {
    for (DType dtype : {DType::kU8, DType::kBool}) {
      OpSample bytes = sample({3, 5, 2}, {0, 2}, false);
      bytes.inputs[0].dtype = dtype;
      def.Sample(std::move(bytes));
    }
  }
  return def;
}

// Sums of columns, rows by rows: of floating types, since others are not added up in blocks.
OpParts SumParts(const OpContext& ctx) {
  const TensorType& in = ctx.inputs[0];
  if (in.dtype != DType::kF32 && in.dtype != DType::kF64) return {};
  int64_t outer = 1, reduced = 1, inner = 1;
  bool has_reduced = false, has_inner = false;
  for (int axis = 0; axis < in.shape.rank(); ++axis) {
    if (IsReduced(ctx.attrs.Ints("axes"), axis)) {
      if (has_inner) return {};
      has_reduced = true;
      reduced *= in.shape[axis];
    } else if (has_reduced) {
      has_inner = true;
      inner *= in.shape[axis];
    } else {
      outer *= in.shape[axis];
    }
  }
  if (outer != 1 || reduced == 0 || inner <= 1) return {};
  return {.elements = reduced * inner, .step = inner};
}

// Back over the reduced axes.
Tensor Spread(const Context& c, Tensor dy) {
  const Shape shape = c.inputs[0].shape();  // a copy: appending moves the graph's
  const Tensor like_x = Cast(dy, c.inputs[0].dtype());
  return BroadcastTo(Reshape(like_x, KeptShape(shape, c.op.attrs.Ints("axes"))), shape);
}

Gradients SumGradient(const Context& c) { return {Spread(c, c.output_gradients[0])}; }

Gradients MeanGradient(const Context& c) {
  double count = 1;
  for (int64_t axis : c.op.attrs.Ints("axes")) count *= c.inputs[0].shape()[axis];
  return {Spread(c, Scale(c.output_gradients[0], 1 / count))};
}

// Elements that are equal to the extreme share its gradient.
Gradients ExtremeGradient(const Context& c) {
  const Tensor x = c.inputs[0], dy = Cast(c.output_gradients[0], x.dtype());
  const Ints& axes = c.op.attrs.Ints("axes");
  if (axes.empty()) return {dy};
  const Shape kept = KeptShape(x.shape(), axes);
  const Tensor extreme = Reshape(Cast(c.outputs[0], x.dtype()), kept);
  const Tensor is_extreme = Cast(Equal(x, extreme), x.dtype());
  const Tensor ties = ReduceSum(is_extreme, {.axes = axes, .keep_dims = true});
  return {Mul(is_extreme, Div(Reshape(dy, kept), ties))};
}

// The product of all others, which is not the product over the element where that is 0: what comes
// before it times what comes after it.
Gradients ProdGradient(const Context& c) {
  const Tensor x = c.inputs[0], dy = c.output_gradients[0];
  const Ints& axes = c.op.attrs.Ints("axes");
  if (axes.empty()) return {dy};
  const Shape shape = x.shape();
  const auto of_others = [](Tensor values, int64_t axis) {
    const Tensor before = CumProd(values, axis, {.exclusive = true});
    return Mul(before, CumProd(values, axis, {.exclusive = true, .reverse = true}));
  };
  const Tensor spread = Reshape(dy, KeptShape(shape, axes));
  if (axes.size() == 1) return {Mul(of_others(x, axes[0]), spread)};
  // Several axes become one behind the others.
  Ints perm, inverse(shape.rank()), moved, merged;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!IsReduced(axes, axis)) perm.push_back(axis);
  }
  perm.insert(perm.end(), axes.begin(), axes.end());
  int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    inverse[perm[i]] = i;
    moved.push_back(shape[static_cast<int>(perm[i])]);
    if (IsReduced(axes, static_cast<int>(perm[i]))) {
      count *= moved.back();
    } else {
      merged.push_back(moved.back());
    }
  }
  merged.push_back(count);
  const Tensor others = of_others(Reshape(Transpose(x, perm), Shape(merged)), -1);
  return {Mul(Transpose(Reshape(others, Shape(moved)), inverse), spread)};
}

Gradients SumSquareGradient(const Context& c) {
  return {Mul(Spread(c, Scale(c.output_gradients[0], 2)), c.inputs[0])};
}

Gradients L1Gradient(const Context& c) {
  return {Mul(Spread(c, c.output_gradients[0]), Sign(c.inputs[0]))};
}

// Where the extreme is along an axis; of equals the first one, or the last one.
OpDef ArgExtremeOp(std::string name) {
  return OpDef(std::move(name))
      .Rule("A{axis}_B->AB")
      .Gives(DType::kI32)
      .NoGradient()
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[0].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = {{"axis", int64_t{1}}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 2}}}, .attrs = {{"axis", int64_t{1}}}})
      .Sample({.inputs = {{DType::kU8, {5, 6}}},
               .attrs = {{"axis", int64_t{1}}, {"last", true}},
               .int_high = 3});
}

OpDef ReduceExtreme(std::string name, Sbp partial) {
  return Reduce({.name = std::move(name),
                 .partial = partial,
                 .takes_partial = true,
                 .takes_bytes = true,
                 .keeps_wide = true})
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"axes", Ints{1}}, {"keep_dims", false}, {"dtype", DType::kF32}}})
      .Gradient(ExtremeGradient);
}

}  // namespace

std::vector<OpDef> ReduceOps() {
  return {
      Reduce({.name = "reduce_sum", .partial = sbp::P, .takes_partial = true, .keeps_wide = true})
          .Sample({.inputs = {{DType::kF32, {6, 5}}},
                   .attrs = {{"axes", Ints{0}}, {"keep_dims", false}, {"dtype", DType::kF32}}})
          .Parts(SumParts)
          .Gradient(SumGradient),
      Reduce({.name = "reduce_mean",
              .partial = sbp::P,
              .takes_partial = true,
              .takes_integers = false,
              .keeps_wide = true})
          .Sample({.inputs = {{DType::kF32, {6, 5}}},
                   .attrs = {{"axes", Ints{0}}, {"keep_dims", true}, {"dtype", DType::kF32}}})
          .Gradient(MeanGradient),
      ReduceExtreme("reduce_max", sbp::Pmax),
      ReduceExtreme("reduce_min", sbp::Pmin),
      // Products of addends are no addends, and there is no layout of factors.
      Reduce({.name = "reduce_prod", .low = 0.5, .high = 1.5}).Gradient(ProdGradient),
      Reduce({.name = "reduce_sum_square", .partial = sbp::P}).Gradient(SumSquareGradient),
      Reduce({.name = "reduce_l1", .partial = sbp::P}).Gradient(L1Gradient),
      ArgExtremeOp("argmax"),
      ArgExtremeOp("argmin"),
  };
}

}  // namespace braid
