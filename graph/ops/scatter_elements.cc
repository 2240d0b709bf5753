// Elements at places that an index tensor of the table's rank names: reading them
// (gather_elements), adding into zeros there, which is the gradient of reading, and writing or
// joining there (scatter_elements). Negative indices count from the end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/functional.h"
#include "graph/ops/families.h"
#include "graph/ops/scatter_reduction.h"
#include "graph/ops/shapes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

using Context = GradientContext;
using Gradients = std::vector<Tensor>;
using Ints = std::vector<int64_t>;
constexpr int kNone = Factor::kAbsent;

absl::Status CheckElements(const Shape& table, const Shape& indices, int64_t axis) {
  BRAID_RETURN_IF_ERROR(CheckAxis(axis, table.rank()));
  bool fits = table.rank() == indices.rank();
  for (int i = 0; fits && i < table.rank(); ++i) fits = i == axis || indices[i] <= table[i];
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the table is ", table.ToString(), ", the indices are ", indices.ToString(),
                   "; they must have one rank, and the indices no larger dim but at axis ", axis));
}

Places ElementPlaces(const Context& c, Tensor indices) {
  const int64_t axis = c.op.attrs.Int("axis");
  Places at;
  at.read = [=](Tensor table) { return GatherElements(table, indices, axis); };
  at.sum = [=](Tensor updates, Shape table) {
    return Apply("gather_elements_grad", {indices, updates},
                 {{"axis", axis}, {"shape", table.dims()}});
  };
  at.join = [=](Tensor table, Tensor updates, std::string reduction) {
    return Apply("scatter_elements", {table, indices, updates},
                 {{"axis", axis}, {"reduction", std::move(reduction)}});
  };
  at.last_ones = [=, &c, read = at.read, join = at.join] {
    const Tensor number = Numbered(c, indices.shape(), axis);
    return Equal(read(join(Unset(c, number.dtype(), c.inputs[0].shape()), number, "none")), number);
  };
  return at;
}

OpDef GatherElementsOp() {
  return OpDef("gather_elements")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
        BRAID_RETURN_IF_ERROR(
            CheckElements(ctx.inputs[0].shape, ctx.inputs[1].shape, ctx.attrs.Int("axis")));
        return std::vector<TensorType>{{ctx.inputs[0].dtype, ctx.inputs[1].shape}};
      })
      .Rule([](const OpContext& ctx) {
        FactorRule rule;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const Shape &table = ctx.inputs[0].shape, &indices = ctx.inputs[1].shape;
        for (int i = 0; i < table.rank(); ++i) {
          const bool is_shared = i != axis && table[i] == indices[i];
          rule.factors.push_back({.inputs = {is_shared ? i : kNone, i}, .outputs = {i}});
        }
        // Elements that are elsewhere count as zeros.
        rule.factors.push_back({.inputs = {axis, kNone}, .outputs = {kNone}});
        return rule;
      })
      .Linear({0})
      .Gradient([](const Context& c) {
        const Places at = ElementPlaces(c, c.inputs[1]);
        return Gradients{at.sum(c.output_gradients[0], c.inputs[0].shape()), Tensor()};
      })
      .Sample({.inputs = {{DType::kF32, {5, 6}}, {DType::kI32, {5, 4}}},
               .attrs = {{"axis", int64_t{1}}},
               .int_high = 6})
      .Sample({.inputs = {{DType::kF32, {4, 3, 6}}, {DType::kI64, {7, 3, 2}}},
               .attrs = {{"axis", int64_t{0}}},
               .int_high = 4});
}

OpDef GatherElementsGradientOp() {
  return OpDef("gather_elements_grad")
      .Infer([](const OpContext& ctx) -> Types {
        BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 2));
        BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 0));
        const Ints& dims = ctx.attrs.Ints("shape");
        BRAID_RETURN_IF_ERROR(CheckDims(dims));
        BRAID_RETURN_IF_ERROR(
            CheckElements(Shape(dims), ctx.inputs[0].shape, ctx.attrs.Int("axis")));
        if (ctx.inputs[1].shape != ctx.inputs[0].shape) {
          return absl::InvalidArgumentError(absl::StrCat("a is ", ctx.inputs[0].ToString(),
                                                         ", b is ", ctx.inputs[1].ToString(),
                                                         "; the shapes must be equal"));
        }
        return std::vector<TensorType>{{ctx.inputs[1].dtype, Shape(dims)}};
      })
      .Rule([](const OpContext& ctx) {
        FactorRule rule;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const Shape &indices = ctx.inputs[0].shape, &out = ctx.outputs[0].shape;
        for (int i = 0; i < out.rank(); ++i) {
          const bool is_shared = i != axis && out[i] == indices[i];
          rule.factors.push_back({.inputs = {i, i}, .outputs = {is_shared ? i : kNone}});
          // Each part of the table takes what falls into it.
          if (!is_shared) rule.factors.push_back({.inputs = {kNone, kNone}, .outputs = {i}});
        }
        return rule;
      })
      .Linear({1})
      .Gradient([](const Context& c) {
        return Gradients{
            Tensor(), GatherElements(c.output_gradients[0], c.inputs[0], c.op.attrs.Int("axis"))};
      })
      .Flops([](const OpContext& ctx) {
        return static_cast<double>(ctx.inputs[1].shape.num_elements());
      })
      .Sample({.inputs = {{DType::kI32, {5, 8}}, {DType::kF32, {5, 8}}},
               .attrs = {{"axis", int64_t{1}}, {"shape", Ints{5, 6}}},
               .int_high = 6})
      .Sample({.inputs = {{DType::kI64, {7, 3, 2}}, {DType::kF32, {7, 3, 2}}},
               .attrs = {{"axis", int64_t{0}}, {"shape", Ints{4, 3, 6}}},
               .int_high = 4});
}

OpDef ScatterElementsOp() {
  OpDef def("scatter_elements");
  def.Infer([](const OpContext& ctx) -> Types {
       BRAID_RETURN_IF_ERROR(CheckInputs(ctx, 3));
       BRAID_RETURN_IF_ERROR(CheckInteger(ctx, 1));
       BRAID_RETURN_IF_ERROR(CheckSameDType(ctx, 0, 2));
       BRAID_RETURN_IF_ERROR(CheckReduction(ctx));
       BRAID_RETURN_IF_ERROR(
           CheckElements(ctx.inputs[0].shape, ctx.inputs[1].shape, ctx.attrs.Int("axis")));
       if (ctx.inputs[2].shape != ctx.inputs[1].shape) {
         return absl::InvalidArgumentError(absl::StrCat("b is ", ctx.inputs[1].ToString(),
                                                        ", c is ", ctx.inputs[2].ToString(),
                                                        "; the shapes must be equal"));
       }
       return std::vector<TensorType>{ctx.inputs[0]};
     })
      .Rule([](const OpContext& ctx) {
        FactorRule rule;
        const int axis = static_cast<int>(ctx.attrs.Int("axis"));
        const Shape &table = ctx.inputs[0].shape, &indices = ctx.inputs[1].shape;
        for (int i = 0; i < table.rank(); ++i) {
          const bool is_shared = i != axis && table[i] == indices[i];
          // Otherwise each part of the table takes what falls into it.
          const int other = is_shared ? i : kNone;
          rule.factors.push_back({.inputs = {i, other, other}, .outputs = {i}});
          if (!is_shared) AppendSplitUpdates(ctx, i, rule);
        }
        AppendPartials(ctx, rule);
        return rule;
      })
      .Inplace(0, 0)
      .Gradient([](const Context& c) { return ScatterGradient(c, ElementPlaces(c, c.inputs[1])); });
  for (const char* reduction : {"none", "mul", "max", "min"}) {
    def.Sample({.inputs = {{DType::kF32, {5, 6}}, {DType::kI32, {5, 4}}, {DType::kF32, {5, 4}}},
                .attrs = {{"axis", int64_t{1}}, {"reduction", reduction}},
                .int_high = 6});
  }
  return def.Sample(
      {.inputs = {{DType::kF32, {4, 6}}, {DType::kI64, {7, 3}}, {DType::kF32, {7, 3}}},
       .attrs = {{"axis", int64_t{0}}, {"reduction", "none"}}});
}

}  // namespace

std::vector<OpDef> ScatterElementsOps() {
  return {GatherElementsOp(), GatherElementsGradientOp(), ScatterElementsOp()};
}

}  // namespace braid
