// Ops that move elements and compute nothing.
#include <algorithm>
#include <limits>
#include <numeric>

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

// Groups of axes of `a` and `b` with equal products, cut as finely as possible. Splitting the first
// axes that are not 1 in equal parts cuts the elements at the same places: what they share is a
// factor.
FactorRule MatchAxes(const Shape& a, const Shape& b) {
  FactorRule rule;
  if (a.num_elements() == 0) return rule;
  int i = 0, j = 0;
  while (true) {
    while (i < a.rank() && a[i] == 1) ++i;
    while (j < b.rank() && b[j] == 1) ++j;
    if (i == a.rank() || j == b.rank()) return rule;
    rule.factors.push_back({.inputs = {i}, .outputs = {j}, .size = std::gcd(a[i], b[j])});
    int64_t pa = a[i++], pb = b[j++];
    while (pa != pb) {
      if (pa < pb) {
        pa *= a[i++];
      } else {
        pb *= b[j++];
      }
    }
  }
}

OpDef ReshapeOp() {
  return OpDef("reshape")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const Ints& dims = ctx.attrs.Ints("shape");
        // Dims as they are given: their product may be more than a number holds.
        int64_t elements = std::ranges::count(dims, 0) > 0 ? 0 : 1;
        bool fits = true;
        for (const int64_t dim : dims) {
          fits = fits && dim >= 0 && !__builtin_mul_overflow(elements, dim, &elements);
        }
        if (!fits || elements != ctx.inputs[0].shape.num_elements()) {
          return Disagree(ctx, "shape", dims, "the numbers of elements differ");
        }
        return std::vector<TensorType>{{ctx.inputs[0].dtype, Shape(dims)}};
      })
      .Rule(
          [](const OpContext& ctx) { return MatchAxes(ctx.inputs[0].shape, ctx.outputs[0].shape); })
      .Linear({0})
      .PassesPartialMaxMin()
      .Parts(CopyParts)
      .Inplace(0, 0)
      .Gradient([](const Context& c) {
        return Gradients{Reshape(c.output_gradients[0], c.inputs[0].shape())};
      })
      .Sample({.inputs = {{DType::kF32, {5, 2, 3}}}, .attrs = {{"shape", Ints{5, 6}}}})
      .Sample({.inputs = {{DType::kF32, {8, 3}}}, .attrs = {{"shape", Ints{4, 6}}}})
      .Sample({.inputs = {{DType::kF32, {1, 5, 6}}}, .attrs = {{"shape", Ints{5, 1, 2, 3}}}});
}

OpDef TransposeOp() {
  return OpDef("transpose")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const Ints& perm = ctx.attrs.Ints("perm");
        Ints sorted = perm, all(ctx.inputs[0].shape.rank());
        std::sort(sorted.begin(), sorted.end());
        std::iota(all.begin(), all.end(), 0);
        if (sorted != all) return Disagree(ctx, "perm", perm, "it must name each axis once");
        Shape shape = ctx.inputs[0].shape;
        for (int i = 0; i < shape.rank(); ++i) shape[i] = ctx.inputs[0].shape[perm[i]];
        return std::vector<TensorType>{{ctx.inputs[0].dtype, shape}};
      })
      .Rule([](const OpContext& ctx) {
        FactorRule rule;
        for (const int64_t axis : ctx.attrs.Ints("perm")) {
          const int out = static_cast<int>(rule.factors.size());
          rule.factors.push_back({.inputs = {static_cast<int>(axis)}, .outputs = {out}});
        }
        return rule;
      })
      .Linear({0})
      .PassesPartialMaxMin()
      .Gradient([](const Context& c) {
        const Ints& perm = c.op.attrs.Ints("perm");
        Ints inverse(perm.size());
        for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = i;
        return Gradients{Transpose(c.output_gradients[0], inverse)};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}}, .attrs = {{"perm", Ints{1, 0}}}})
      .Sample({.inputs = {{DType::kF32, {3, 5, 2}}}, .attrs = {{"perm", Ints{2, 0, 1}}}});
}

OpDef ConcatOp() {
  return OpDef("concat")
      .Infer([](const OpContext& ctx) -> Types {
        if (ctx.inputs.empty()) return absl::InvalidArgumentError("has 0 inputs, takes 1 or more");
        const int64_t axis = ctx.attrs.Int("axis");
        Shape shape = ctx.inputs[0].shape;
        BRAID_RETURN_IF_ERROR(CheckAxis(axis, shape.rank()));
        for (size_t i = 1; i < ctx.inputs.size(); ++i) {
          BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, static_cast<int>(i)));
          Shape other = ctx.inputs[i].shape;
          const int64_t more = other.rank() == shape.rank() ? other[axis] : 0;
          if (other.rank() == shape.rank()) other[axis] = shape[axis];
          if (other != shape) {
            return absl::InvalidArgumentError(
                absl::StrCat("input 0 is ", ctx.inputs[0].ToString(), ", input ", i, " is ",
                             ctx.inputs[i].ToString(), "; only axis ", axis, " may differ"));
          }
          if (more > std::numeric_limits<int64_t>::max() - shape[axis]) {
            return absl::InvalidArgumentError(
                absl::StrCat("axis ", axis, " is ", shape[axis], " and ", more, " long; too long"));
          }
          shape[axis] += more;
        }
        return std::vector<TensorType>{{ctx.inputs[0].dtype, shape}};
      })
      .Rule("A{axis}_B*->A_B")
      .Linear({})
      .Gradient([](const Context& c) {
        const int64_t axis = c.op.attrs.Int("axis");
        Ints sizes;
        for (const Tensor& input : c.inputs) sizes.push_back(input.shape()[axis]);
        return Split(c.output_gradients[0], sizes, axis);
      })
      .Sample({.inputs = {{DType::kF32, {5, 2}}, {DType::kF32, {5, 3}}, {DType::kF32, {5, 1}}},
               .attrs = {{"axis", int64_t{1}}}})
      .Sample({.inputs = {{DType::kF32, {2, 5, 3}}, {DType::kF32, {3, 5, 3}}},
               .attrs = {{"axis", int64_t{0}}}});
}

OpDef SplitOp() {
  return OpDef("split")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const int64_t axis = ctx.attrs.Int("axis");
        const Ints& sizes = ctx.attrs.Ints("sizes");
        BRAID_RETURN_IF_ERROR(CheckAxis(axis, ctx.inputs[0].shape.rank()));
        int64_t total = 0;
        std::vector<TensorType> types;
        for (int64_t size : sizes) {
          if (size < 0) return Disagree(ctx, "sizes", sizes, "a size must not be negative");
          total += std::min(size, std::numeric_limits<int64_t>::max() - total);
          types.push_back(ctx.inputs[0]);
          types.back().shape[axis] = size;
        }
        if (total != ctx.inputs[0].shape[axis]) {
          return Disagree(ctx, "sizes", sizes, absl::StrCat("they must add up to axis ", axis));
        }
        return types;
      })
      .Rule("A{axis}_B->A_B*")
      .Linear({0})
      .Gradient([](const Context& c) {
        std::vector<Tensor> parts = c.output_gradients;
        for (size_t i = 0; i < parts.size(); ++i) {
          if (parts[i].valid()) continue;
          const TensorType type = c.outputs[i].type();
          parts[i] = Constant(c.graph, 0, {.dtype = type.dtype, .shape = type.shape});
        }
        return Gradients{Concat(parts, c.op.attrs.Int("axis"))};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}},
               .attrs = {{"axis", int64_t{1}}, {"sizes", Ints{2, 3, 1}}}})
      .Sample({.inputs = {{DType::kF32, {5, 3, 2}}},
               .attrs = {{"axis", int64_t{0}}, {"sizes", Ints{4, 1}}}});
}

OpDef BroadcastToOp() {
  return OpDef("broadcast_to")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 1));
        const Shape shape(ctx.attrs.Ints("shape"));
        absl::StatusOr<Shape> both = BroadcastShapes(ctx.inputs[0].shape, shape);
        if (!both.ok() || *both != shape) {
          return Disagree(ctx, "shape", shape.dims(), "it does not broadcast to that");
        }
        return std::vector<TensorType>{{ctx.inputs[0].dtype, shape}};
      })
      .Rule("...->...")
      .Linear({0})
      .PassesPartialMaxMin()
      .Gradient([](const Context& c) {
        return Gradients{SumTo(c.output_gradients[0], c.inputs[0].shape())};
      })
      .Sample({.inputs = {{DType::kF32, {6}}}, .attrs = {{"shape", Ints{5, 6}}}})
      .Sample({.inputs = {{DType::kF32, {5, 1, 3}}}, .attrs = {{"shape", Ints{2, 5, 4, 3}}}});
}

}  // namespace

std::vector<OpDef> LayoutOps() {
  return {ReshapeOp(), TransposeOp(), ConcatOp(), SplitOp(), BroadcastToOp()};
}

}  // namespace braid
